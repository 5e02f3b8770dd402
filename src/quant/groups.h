#pragma once
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

// The largest magnitudes of values (any floating-point dtype, compact, on the CPU) in groups: float32 of
// `shape`. NaN counts as larger than infinity.
Tensor amax_of(const Tensor& values, const Shape& shape);

}  // namespace temper::quant
