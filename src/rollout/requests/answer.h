#pragma once
#include <optional>

#include "rollout/requests/answer_text.h"
#include "rollout/requests/request.h"

namespace temper::rollout {

// Versions of the weights that computed something (layers::ParameterStore::version); adapter 0: none.
struct WeightVersions {
  uint64_t model = 0, adapter = 0;

  // The current ones of these weights; adapter null: the model alone.
  static WeightVersions of(uint64_t model, const layers::Adapter* adapter) {
    return {model, adapter == nullptr ? 0 : adapter->parameters().version()};
  }
  bool operator==(const WeightVersions&) const = default;
};

// What a pass chose as the next token of one request.
struct ChosenToken {
  int32_t id = ops::kNoToken;  // kNoToken: the logits were no distribution
  float log_prob = 0;          // as TokenColumns::rollout_log_probs
  float kept = 0;              // as TokenColumns::kept
};

// The answer to one request, token by token until it ends.
class Answer {
 public:
  // Prompt and answer together have at most `context` tokens. `tokenizer` is for texts and stop strings and
  // must outlive the answer; null: there is none.
  Answer(Request request, int64_t id, int64_t context, const tokenizers::Tokenizer* tokenizer);

  const Request& request() const { return request_; }
  // Adds the next token, chosen by weights of these versions. False where the answer ends with it: its
  // result is then complete.
  bool take(const ChosenToken& token, const WeightVersions& versions);
  void end(Finish finish);  // with what it has
  // The part of its text that became certain with the last token, or with its end (AnswerText::push).
  const std::string& new_text() const { return new_text_; }
  Completion& result() { return result_; }
  const Completion& result() const { return result_; }

 private:
  std::optional<Finish> add(const ChosenToken& token, const WeightVersions& versions);
  int64_t length() const { return std::ssize(request_.prompt) + std::ssize(result_.ids); }

  Request request_;
  int64_t context_;
  std::optional<AnswerText> text_;  // with a tokenizer
  std::string new_text_;
  Completion result_;
};

}  // namespace temper::rollout
