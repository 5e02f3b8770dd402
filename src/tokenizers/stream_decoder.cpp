#include "base/utf8.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return "";
  held_ += tokenizer_->token_bytes(id);
  size_t ready = 0;
  while (ready < held_.size()) {
    const Utf8Step step = next_utf8(std::string_view(held_).substr(ready));
    if (step.kind == Utf8Kind::kIncomplete) break;
    ready += step.size;
  }
  const std::string printable = replace_invalid_utf8(std::string_view(held_).substr(0, ready));
  held_.erase(0, ready);
  text_ += printable;
  return printable;
}

std::string StreamDecoder::finish() {
  const std::string printable = replace_invalid_utf8(held_);
  held_.clear();
  text_ += printable;
  return printable;
}

}  // namespace temper::tokenizers
