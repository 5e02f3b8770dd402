#pragma once
#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace temper::quant {

// Which amax belongs to an element. Values are [rows, columns] or [experts, rows, columns]; amax has as many
// dimensions, each a divisor of the values': [1, 1] of a whole matrix, [rows, 1] of channels or tokens,
// [rows, columns / 128] of blocks, [rows / 128, columns / 128] of tiles, [experts, 1, 1] of each expert.
struct Groups {
  int64_t experts = 1, rows = 0, columns = 0;                    // of the values
  int64_t expert_groups = 1, row_groups = 1, column_groups = 1;  // of amax

  int64_t width() const { return columns / column_groups; }  // elements of a row that share an amax
  // The first amax of a row, of which there are experts · rows.
  int64_t first(int64_t row) const {
    const int64_t expert = row / rows, inside = row % rows;
    return (expert / (experts / expert_groups) * row_groups + inside / (rows / row_groups)) * column_groups;
  }
};

// An Error "[where] amax is …, values [...] need …" where they do not fit.
Groups groups_of(std::string_view where, const Shape& values, const Shape& amax);

// What is looked for in a group, from 0 on: the largest magnitude, the largest value (at least 0), or the
// least one (at most 0).
enum class Extreme { kMagnitude, kHigh, kLow };

// The bits of a float32 by which extremes are compared: those of its magnitude, in whose order NaN comes
// last, or 0 where it does not count; and the number that the largest bits mean.
constexpr uint32_t bits_of_extreme(Extreme extreme, uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (extreme == Extreme::kMagnitude || magnitude > 0x7F800000u) return magnitude;
  return (bits >> 31 != 0) == (extreme == Extreme::kLow) ? magnitude : 0;
}
constexpr uint32_t extreme_of_bits(Extreme extreme, uint32_t found) {
  return extreme == Extreme::kLow && found != 0 ? found | 0x80000000u : found;
}

// The extremes of values (any floating-point dtype, compact, on the CPU) in groups: float32 of `shape`. NaN
// counts as beyond infinity.
Tensor amax_of(const Tensor& values, const Shape& shape, Extreme extreme = Extreme::kMagnitude);

}  // namespace temper::quant
