#pragma once
#include <cstddef>

namespace temper::tokenizers {

struct ByteSpan {
  size_t begin = 0, end = 0;
  bool operator==(const ByteSpan&) const = default;
};

}  // namespace temper::tokenizers
