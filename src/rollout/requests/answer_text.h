#pragma once
#include <string>
#include <vector>

#include "tokenizers/tokenizer.h"

namespace temper::rollout {

// The ids of those stop strings that are the names of special tokens: such a token ends an answer by its id,
// whether or not its name is part of the text.
std::vector<int32_t> stop_tokens(const std::vector<std::string>& stop_strings,
                                 const tokenizers::Tokenizer& tokenizer);

// The text of an answer, token by token: what Tokenizer::decode makes of the ids, up to the first stop string
// in it. The tokenizer must outlive it.
class AnswerText {
 public:
  AnswerText(const tokenizers::Tokenizer& tokenizer, std::vector<std::string> stop_strings,
             bool skip_special_tokens);

  // The text that became certain: what may be the beginning of a stop string is held back.
  std::string push(int32_t id);
  std::string finish();  // what was held back; after the last token
  bool stopped() const { return stopped_; }
  std::string text() const;

 private:
  std::string take(size_t before, bool last);
  size_t held_back() const;

  tokenizers::StreamDecoder stream_;
  std::vector<std::string> stop_strings_;
  size_t certain_ = 0;  // bytes of the stream's text that push and finish gave
  bool stopped_ = false;
};

}  // namespace temper::rollout
