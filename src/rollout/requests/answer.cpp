#include "rollout/requests/answer.h"

#include <fmt/format.h>

#include <algorithm>

namespace temper::rollout {

Answer::Answer(Request request, int64_t id, int64_t context, const tokenizers::Tokenizer* tokenizer)
    : request_(std::move(request)), context_(context) {
  result_.id = id;
  if (tokenizer == nullptr) return;
  text_.emplace(*tokenizer, request_.stop_strings, request_.skip_special_tokens);
  for (const int32_t stop : stop_tokens(request_.stop_strings, *tokenizer)) request_.stop_ids.push_back(stop);
}

bool Answer::take(const ChosenToken& token, const WeightVersions& versions) {
  new_text_.clear();
  const std::optional<Finish> why = add(token, versions);
  if (why) end(*why);
  return !why;
}

void Answer::end(Finish finish) {
  result_.finish = finish;
  if (!text_) return;
  new_text_ += text_->finish();
  result_.text = text_->text();
}

// Why the answer ends with this token; nothing where it continues.
std::optional<Finish> Answer::add(const ChosenToken& token, const WeightVersions& versions) {
  if (token.id == ops::kNoToken) {
    result_.error = fmt::format(
        "[generate] the model's logits for new token {} (position {} of the text) have no largest finite "
        "value: NaN or infinity. Check the weights and adapters (did their training diverge?), or use "
        "--dtype float32",
        result_.ids.size() + 1, length());
    return Finish::kFailed;
  }
  result_.ids.push_back(token.id);
  result_.columns.rollout_log_probs.push_back(token.log_prob);
  result_.columns.kept.push_back(token.kept);
  result_.versions.push_back(versions.model);
  if (request_.adapter != nullptr) result_.adapter_versions.push_back(versions.adapter);
  if (std::find(request_.stop_ids.begin(), request_.stop_ids.end(), token.id) != request_.stop_ids.end())
    return Finish::kStopToken;
  if (text_) {
    new_text_ = text_->push(token.id);
    if (text_->stopped()) return Finish::kStopString;
  }
  if (length() >= context_) return Finish::kContext;
  if (std::ssize(result_.ids) >= request_.max_new_tokens) return Finish::kLength;
  return {};
}

}  // namespace temper::rollout
