#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizers/byte_span.h"

namespace temper::tokenizers {

// Turns a stretch of normalized text between added tokens into tokens: splits it, and applies the model.
class Segmenter {
 public:
  virtual ~Segmenter() = default;
  // Appends the tokens and, unless `spans` is null, which bytes of `text` each covers. at_start: nothing
  // stands before the stretch; used only where asks_for_start.
  virtual void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids,
                      std::vector<ByteSpan>* spans) const = 0;
  virtual bool asks_for_start() const { return false; }
};

}  // namespace temper::tokenizers
