#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tokenizers/text/byte_span.h"
#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// The tokens that merging begins with, and the bytes each covers.
struct Symbols {
  std::vector<int32_t> ids;
  std::vector<ByteSpan> spans;
  void add(int32_t id, ByteSpan span);
  // Appends the bytes, counted from `begin`, of the tokens that these were merged to.
  void append_spans(std::span<const int32_t> merged, const Vocabulary& vocabulary, size_t begin,
                    std::vector<ByteSpan>& out) const;
};

}  // namespace temper::tokenizers
