#include "recipes/setup/training_stop_token.h"

#include <algorithm>
#include <map>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "rollout/requests/answer_text.h"

namespace temper::recipes {
namespace {

constexpr int64_t kRows = 16;  // of each source
constexpr size_t kTokens = 4;  // of an answer's end: a template may write more behind the end of a turn

// Whether a row has an answer, which should end.
bool answers(data::RowFormat format) {
  return format != data::RowFormat::kText && format != data::RowFormat::kTokens &&
         format != data::RowFormat::kPromptOnly;
}

Json answered(Json messages) {
  messages.as_array().push_back(Json::Object{{"role", "assistant"}, {"content", "x"}});
  return Json::Object{{"messages", std::move(messages)}};
}

// The last targets that follow one another.
std::span<const int32_t> end_of(const data::Example& example) {
  const auto last = std::find(example.loss_mask.rbegin(), example.loss_mask.rend(), 1);
  const auto before = std::find(last, example.loss_mask.rend(), 0);
  const auto begin = static_cast<size_t>(example.loss_mask.rend() - before),
             end = static_cast<size_t>(example.loss_mask.rend() - last);
  const size_t count = std::min(kTokens, end - begin);
  return std::span(example.ids).subspan(end - count, count);
}

class Endings {
 public:
  Endings(const rollout::TextFiles& text, const RolloutSettings* rollouts)
      : text_(text), rollouts_(rollouts), stops_(text.generation.stop_ids) {
    if (rollouts == nullptr) return;
    for (const int32_t id : rollout::stop_tokens(rollouts->stop_strings, text.tokenizer))
      stops_.push_back(id);
  }

  void add(const data::Member& member) {
    for (int64_t i = 0; i < std::min(kRows, member.size()); ++i) try {
        const Json row = member.source->row(member.row(i));
        const int64_t most = member.encoder->options().max_length;
        if (rollouts_ == nullptr) add(member.encoder->encode(row), most);
        if (rollouts_ == nullptr || !member.encoder->messages_of(row).is_array()) continue;
        add(member.encoder->with_goal(data::Goal::kLanguageModel)
                .encode(answered(member.encoder->messages_of(row))),
            most);
      } catch (const Error&) {
        continue;  // reported when it is trained on
      }
  }

  // The special token that ends most of the answers at which generation would not stop.
  std::optional<int32_t> token() const {
    const auto most = std::max_element(endings_.begin(), endings_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == endings_.end() ? std::nullopt : std::optional(most->first);
  }

  void warn() const {
    std::vector<std::string> stops;
    for (const int32_t id : stops_) stops.push_back(named(id));
    const std::string generation =
        stops.empty()
            ? "the model has no stop token (eos_token_id of generation_config.json)"
            : fmt::format("generation stops at {} (eos_token_id of the model's files)", join(stops));
    const std::string found = fmt::format("[data] in {} of {} answers that were looked at", open_, looked_);
    if (const auto id = token())
      log_warning(fmt::format(
          "{} the end is {}, but {}: such answers would not end. {}What this run saves stops at {} as "
          "well (its generation_config.json)",
          found, named(*id), generation,
          rollouts_ == nullptr ? ""
                               : fmt::format("For rollouts write grpo.sampling.stop: ['{}']. ",
                                             text_.tokenizer.token_text(*id)),
          named(*id)));
    else
      log_warning(fmt::format(
          "{} no special token ends the answer, and {}: the model does not learn to end its answers. "
          "Set eos_token_id in the model's generation_config.json, or a data.chat_template that ends them",
          found, generation));
  }
  bool any() const { return open_ > 0; }

 private:
  void add(const data::EncodedRow& row, int64_t max_length) {
    const bool whole = max_length == 0 || row.full_length <= max_length;
    if (row.status != data::RowStatus::kKept || !whole || !answers(row.format)) return;
    for (const data::Example& example : row.examples) {
      const std::span<const int32_t> end = end_of(example);
      if (end.empty()) continue;
      ++looked_;
      if (std::find_first_of(end.begin(), end.end(), stops_.begin(), stops_.end()) != end.end()) continue;
      ++open_;
      const auto special =
          std::find_if(end.rbegin(), end.rend(), [&](int32_t id) { return text_.tokenizer.is_special(id); });
      if (special != end.rend()) ++endings_[*special];
    }
  }

  std::string named(int32_t id) const {
    return fmt::format("'{}' (id {})", text_.tokenizer.token_text(id), id);
  }

  const rollout::TextFiles& text_;
  const RolloutSettings* rollouts_;
  std::vector<int32_t> stops_;
  std::map<int32_t, int64_t> endings_;
  int64_t looked_ = 0, open_ = 0;
};

}  // namespace

std::optional<int32_t> training_stop_token(const data::Mixture& rows, const rollout::TextFiles& text,
                                           const RolloutSettings* rollouts) {
  Endings endings(text, rollouts);
  for (const data::Member& member : rows.members()) endings.add(member);
  if (!endings.any()) return std::nullopt;
  endings.warn();
  return endings.token();
}

}  // namespace temper::recipes
