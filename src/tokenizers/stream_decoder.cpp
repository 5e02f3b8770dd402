#include "tokenizers/decoding/decoder.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      skip_special_tokens_(skip_special_tokens),
      state_(std::make_unique<DecoderState>(tokenizer.decoder().start())) {}

StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(int32_t id) {
  std::string printable;
  const std::string_view spelling = tokenizer_->spelling(id);
  if (spelling.empty() || (skip_special_tokens_ && tokenizer_->is_special(id))) return printable;
  tokenizer_->decoder().push(spelling, *state_, printable);
  text_ += printable;
  return printable;
}

std::string StreamDecoder::finish() {
  std::string printable;
  tokenizer_->decoder().finish(*state_, printable);
  text_ += printable;
  return printable;
}

}  // namespace temper::tokenizers
