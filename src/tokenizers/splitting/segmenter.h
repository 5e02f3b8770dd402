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
  // How a stretch begins.
  struct Start {
    // Whether what begins at this byte of it comes from the very beginning of the whole text; called only
    // where asks_for_start.
    std::function<bool(size_t)> is_start_of_text;
    bool continued = false;  // the text was cut here: what is put before texts is not put before the stretch
  };
  // Appends the tokens and, unless `origins` is null, which bytes of `text` each covers.
  virtual void encode(std::string_view text, const Start& start, std::vector<int32_t>& ids,
                      Origins* origins) const = 0;
  virtual bool asks_for_start() const { return false; }
  virtual bool cuts_at_words() const { return false; }  // splitter.h
};

}  // namespace temper::tokenizers
