#include "recipes/grpo/answers/conversation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "data/chat/losses.h"
#include "rollout/requests/finish.h"

namespace temper::recipes {
namespace {

// What an environment's messages must be for a chat template.
const Json::Array& messages_of(const Json& next, const std::string& place) {
  if (!next.is_array() || next.as_array().empty())
    fail("[{}] the environment's messages are {}, expected a list of at least one", place, next.kind_name());
  for (const Json& message : next.as_array())
    if (!message.is_object() || message.find("role") == nullptr)
      fail("[{}] a message of the environment has no role", place);
  return next.as_array();
}

}  // namespace

Conversation::Conversation(const Asked& asked, int64_t rollout)
    : asked_(&asked), sample_{rollout, asked.group, asked.number, asked.prompt->row} {
  sample_.passages.push_back({.prompt = asked.prompt->ids});
  const Json& said = asked.prompt->messages;
  is_chat_ = said.is_array();
  if (is_chat_) messages_ = said.as_array();
}

std::string Conversation::place() const {
  return fmt::format("{}, sample {}", asked_->prompt->place, asked_->number);
}

std::vector<int32_t> Conversation::ids() const {
  const Passage& passage = sample_.passages.back();
  std::vector<int32_t> ids = passage.prompt;
  ids.insert(ids.end(), passage.ids.begin(), passage.ids.end());
  return ids;
}

void Conversation::add_turn(const rollout::Completion& turn, const std::vector<uint64_t>& versions) {
  Passage& passage = this->passage();
  passage.ids.insert(passage.ids.end(), turn.ids.begin(), turn.ids.end());
  passage.columns.append(turn.columns);
  passage.versions.insert(passage.versions.end(), versions.begin(), versions.end());
  passage.sampled.resize(passage.ids.size(), 1);
  passage.experts = turn.experts;  // of all tokens: earlier turns were its prompt
  sample_.text = turn.text;
  sample_.finish = rollout::name_of(turn.finish);
  if (is_chat_) messages_.emplace_back(Json::Object{{"role", "assistant"}, {"content", sample_.text}});
}

rewards::Sample Conversation::to_judge() const {
  rewards::Sample judged{place(), &asked_->prompt->json, sample_.text, sample_.count_sampled(),
                         sample_.is_truncated()};
  if (is_chat_) judged.messages = Json(messages_);
  return judged;
}

Json Conversation::add_verdict(rewards::RewardSum::Judged judged, FilterKeys::OnRewardError on_error) {
  // What an environment gives turn by turn adds up.
  const double reward = (std::isnan(sample_.reward) ? 0 : sample_.reward) + judged.verdict.reward;
  if (judged.verdict.error.empty()) judged.verdict.error = rewards::problem_of_reward(reward);
  if (!judged.verdict.error.empty()) {
    const std::string error = fmt::format("[{}] {}", place(), judged.verdict.error);
    if (on_error == FilterKeys::OnRewardError::kStop)
      fail("{}; grpo.filter.on_reward_error: drop leaves such answers out", error);
    log_warning(error + "; the answer is left out");
    sample_.error = judged.verdict.error;
    sample_.reward = std::numeric_limits<double>::quiet_NaN();  // earlier turns are no verdict
    sample_.parts.clear();
    return {};
  }
  sample_.reward = reward;
  sample_.parts.resize(judged.parts.size());
  for (size_t i = 0; i < judged.parts.size(); ++i) sample_.parts[i] += judged.parts[i];
  return sample_.is_truncated() ? Json() : std::move(judged.verdict.next);
}

bool Conversation::extend(const Json& said, const data::RowEncoder& encoder,
                          const tokenizers::Tokenizer& tokenizer, int64_t max_length) {
  const Json::Array& added_messages = messages_of(said, place());
  if (!is_chat_) fail("[{}] the environment answers with messages, but the row is no conversation", place());
  const Json& row = asked_->prompt->json;
  if (text_.empty()) {
    const Json::Array asked(messages_.begin(), messages_.end() - 1);
    text_ = encoder.prompt_text(asked, row).text;
  }
  messages_.insert(messages_.end(), added_messages.begin(), added_messages.end());
  auto [text, lost, notes] = encoder.prompt_text(messages_, row);
  data::warn_of_losses([&] { return place(); }, lost);
  data::log_notes([&] { return place(); }, notes);
  Passage& passage = this->passage();
  // Of the last turn alone: what stood before it is in the text.
  const auto turn =
      std::find(passage.sampled.rbegin(), passage.sampled.rend(), 0).base() - passage.sampled.begin();
  const std::string seen =
      text_ + tokenizer.decode(std::span(passage.ids).subspan(static_cast<size_t>(turn)), false);
  const bool extends = text.starts_with(seen);
  const std::vector<int32_t> added =
      extends ? tokenizer.encode_parts(std::string_view(text).substr(seen.size()), std::array{size_t{0}}).ids
              : tokenizer.encode_with_offsets(text).ids;
  const int64_t before = extends ? std::ssize(passage.prompt) + std::ssize(passage.ids) : 0;
  if (before + std::ssize(added) >= max_length) {
    sample_.finish = "length";
    return false;
  }
  ++sample_.turns;
  if (extends) {
    passage.ids.insert(passage.ids.end(), added.begin(), added.end());
    passage.sampled.resize(passage.ids.size(), 0);
    passage.columns.extend(std::ssize(passage.ids));
    passage.versions.resize(passage.ids.size(), 0);
  } else {
    sample_.passages.push_back({.prompt = added});
  }
  text_ = std::move(text);
  return true;
}

}  // namespace temper::recipes
