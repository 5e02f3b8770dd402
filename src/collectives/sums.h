#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace temper::collectives {

// Part `part` of `parts` of that many elements: [first, last).
inline std::pair<int64_t, int64_t> part_of(int64_t count, int part, int parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

// to[i] = Σ from[r][i] in the order of the ranks, added up in float32 and rounded once. `to` may be one of
// them.
template <class T>
void sum_elements(std::span<const T* const> from, int64_t count, T* to) {
  constexpr int64_t kBlock = 1024;
  std::array<float, kBlock> sums;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = std::min(kBlock, count - first);
    for (int64_t i = 0; i < size; ++i) sums[static_cast<size_t>(i)] = static_cast<float>(from[0][first + i]);
    for (const T* const one : from.subspan(1))
      for (int64_t i = 0; i < size; ++i) sums[static_cast<size_t>(i)] += static_cast<float>(one[first + i]);
    for (int64_t i = 0; i < size; ++i) to[first + i] = T(sums[static_cast<size_t>(i)]);
  }
}

}  // namespace temper::collectives
