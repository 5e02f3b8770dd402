#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tokenizers/text/byte_span.h"

namespace temper::tokenizers {

// Where tokens come from.
struct Origins {
  std::vector<ByteSpan> spans;  // of each token
  size_t num_dropped = 0;       // bytes that have no token and became none
};

// Turns a stretch of normalized text between added tokens into tokens: splits it, and applies the model.
class Segmenter {
 public:
  virtual ~Segmenter() = default;
  // Whether what begins at this byte of the stretch comes from the very beginning of the whole text.
  using AtStart = std::function<bool(size_t)>;
  // Appends the tokens and, unless `origins` is null, which bytes of `text` each covers; at_start is called
  // only where asks_for_start.
  virtual void encode(std::string_view text, const AtStart& at_start, std::vector<int32_t>& ids,
                      Origins* origins) const = 0;
  virtual bool asks_for_start() const { return false; }
};

}  // namespace temper::tokenizers
