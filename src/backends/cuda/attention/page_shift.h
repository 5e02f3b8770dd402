#pragma once
#include <bit>
#include <cstdint>

namespace temper::backends {

// page_tokens = 1 << shift, by which kernels find a token's page without a division; -1 where it is no power
// of two.
inline int page_shift_of(int64_t page_tokens) {
  const auto size = static_cast<uint64_t>(page_tokens);
  return std::has_single_bit(size) ? std::countr_zero(size) : -1;
}

}  // namespace temper::backends
