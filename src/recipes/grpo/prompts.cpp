#include "recipes/grpo/prompts.h"

#include "base/error.h"
#include "base/log.h"
#include "data/chat/losses.h"

namespace temper::recipes {
namespace {

bool is_long(const Prompt& prompt, int64_t most_tokens, int64_t most_new) {
  return std::ssize(prompt.ids) + most_new > most_tokens;
}

std::string question_of(const Json& messages, const Json& row) {
  const Json* text = row.find("prompt");
  if (messages.is_array() && !messages.as_array().empty()) text = messages.as_array().back().find("content");
  return text != nullptr && text->is_string() ? text->as_string() : std::string();
}

Prompt read(const data::Mixture& rows, int64_t row) {
  Prompt prompt{row, {}, rows.json(row), {}, rows.place(row), {}};
  try {
    const data::RowEncoder& encoder = *rows.members()[rows.member_of(row)].encoder;
    data::Asked asked = encoder.asked_of(prompt.json);
    const auto place = [&] { return prompt.place; };
    data::warn_of_losses(place, asked.lost);
    data::log_notes(place, asked.notes);
    prompt.is_lossy = !asked.lost.empty();
    prompt.ids = std::move(asked.ids);
    prompt.messages = std::move(asked.messages);
    prompt.question = question_of(prompt.messages, prompt.json);
  } catch (const Error& error) {
    fail("[{}] {}", prompt.place, error.what());
  }
  if (prompt.ids.empty()) fail("[{}] the prompt has no tokens", prompt.place);
  return prompt;
}

[[noreturn]] void fail_long(const Prompt& prompt, int64_t most_tokens, int64_t most_new) {
  fail(
      "[{}] the prompt has {} tokens, which with grpo.sampling.max_new_tokens, {}, are more than "
      "data.max_length, {}; "
      "raise it, ask for fewer new tokens, or set data.overflow: drop",
      prompt.place, prompt.ids.size(), most_new, most_tokens);
}

}  // namespace

std::optional<Prompt> prompt_of(const data::Mixture& rows, int64_t row, const RunConfig& config,
                                int64_t most_new) {
  const int64_t most = config.data.max_length;
  try {
    Prompt prompt = read(rows, row);
    if (!is_long(prompt, most, most_new)) return prompt;
    if (config.data.overflow != data::Overflow::kDrop) fail_long(prompt, most, most_new);
  } catch (const Error& error) {
    if (config.data.on_bad_row == data::OnBadRow::kStop) throw;
    log_warning(fmt::format("{}; the row is left out", error.what()));
  }
  return std::nullopt;
}

Prompts::Prompts(const data::Mixture& rows, const RunConfig& config, int64_t most_new)
    : rows_(rows),
      config_(config),
      most_new_(most_new),
      order_(rows.sizes(), rows.weights(),
             {static_cast<uint64_t>(config.train.seed), config.data.shuffle, config.data.mixing}) {}

Prompt Prompts::next() {
  for (int64_t tried = 0; tried < rows_.size(); ++tried) {
    if (auto prompt = prompt_of(rows_, order_.next(), config_, most_new_)) {
      ++asked_;
      lossy_ += prompt->is_lossy;
      return std::move(*prompt);
    }
    ++left_out_;
  }
  fail("[data.train] none of {} rows can be asked", rows_.size());
}

Json Prompts::state() const {
  Json state = order_.place().to_json();
  state.set("asked", asked_);
  state.set("left_out", left_out_);
  if (lossy_ > 0) state.set("lossy", lossy_);
  return state;
}

// States of older versions do not count.
void Prompts::restore(const Json& state) {
  order_.restore(data::RowOrder::Place::from_json(state));
  const auto count = [&](std::string_view name) {
    const Json* const found = state.find(name);
    return found == nullptr ? 0 : found->as_int();
  };
  asked_ = count("asked");
  left_out_ = count("left_out");
  lossy_ = count("lossy");
}

}  // namespace temper::recipes
