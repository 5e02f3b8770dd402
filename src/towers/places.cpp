#include "towers/places.h"

#include <algorithm>
#include <cmath>

namespace temper::towers {
namespace {

// Places along one side of a table, of `size` patches that cover it from its first entry to its last.
struct Side {
  int32_t low, high;
  float above;  // the part of the way from low to high
};

Side side_of(int32_t place, int32_t size, int64_t entries) {
  const float source =
      static_cast<float>(place) * static_cast<float>(entries - 1) / static_cast<float>(std::max(size - 1, 1));
  const auto low = static_cast<int32_t>(source);
  return {low, static_cast<int32_t>(std::min<int64_t>(low + 1, entries - 1)),
          source - static_cast<float>(low)};
}

}  // namespace

Places places_of(std::span<const PatchGrid> grids, int64_t merge) {
  Places places;
  const auto size = static_cast<int32_t>(merge);
  for (const PatchGrid& grid : grids)
    for (int32_t frame = 0; frame < grid.frames; ++frame)
      for (int32_t block_row = 0; block_row < grid.rows; block_row += size)
        for (int32_t block_column = 0; block_column < grid.columns; block_column += size)
          for (int32_t i = 0; i < size * size; ++i) {
            places.rows.push_back(block_row + i / size);
            places.columns.push_back(block_column + i % size);
          }
  return places;
}

layers::RopeTables rotary_tables(const Places& places, int64_t head_dim, double theta) {
  const int64_t quarter = head_dim / 4, patches = std::ssize(places.rows);
  const std::vector<float> inverse = layers::rope_inverse_frequencies({.theta = theta}, head_dim / 2);
  const layers::RopeTables tables{Tensor::empty({patches, 2 * quarter}, DType::kF32),
                                  Tensor::empty({patches, 2 * quarter}, DType::kF32)};
  float *cos = tables.cos.data<float>(), *sin = tables.sin.data<float>();
  for (int64_t patch = 0; patch < patches; ++patch)
    for (const std::vector<int32_t>* axis : {&places.rows, &places.columns})
      for (int64_t i = 0; i < quarter; ++i) {
        const float angle =
            static_cast<float>((*axis)[static_cast<size_t>(patch)]) * inverse[static_cast<size_t>(i)];
        *cos++ = std::cos(angle);
        *sin++ = std::sin(angle);
      }
  return tables;
}

Tensor frame_starts(std::span<const PatchGrid> grids) {
  std::vector<int32_t> starts{0};
  for (const PatchGrid& grid : grids)
    for (int32_t frame = 0; frame < grid.frames; ++frame)
      starts.push_back(starts.back() + static_cast<int32_t>(grid.of_frame()));
  return Tensor::from(starts);
}

Windows windows_of(std::span<const PatchGrid> grids, int64_t merge, int64_t side) {
  Windows windows;
  std::vector<int32_t> starts{0};
  int64_t first = 0;  // token of a frame
  for (const PatchGrid& grid : grids) {
    const int64_t rows = grid.rows / merge, columns = grid.columns / merge;
    for (int32_t frame = 0; frame < grid.frames; ++frame, first += rows * columns)
      for (int64_t top = 0; top < rows; top += side)
        for (int64_t left = 0; left < columns; left += side) {
          const int64_t bottom = std::min(top + side, rows), right = std::min(left + side, columns);
          for (int64_t row = top; row < bottom; ++row)
            for (int64_t column = left; column < right; ++column)
              windows.order.push_back(static_cast<int32_t>(first + row * columns + column));
          starts.push_back(static_cast<int32_t>(std::ssize(windows.order) * merge * merge));
        }
  }
  windows.starts = Tensor::from(starts);
  return windows;
}

Taps taps_of(std::span<const PatchGrid> grids, const Places& places, int64_t side) {
  const int64_t patches = std::ssize(places.rows);
  const Taps taps{Tensor::empty({patches * Taps::kCount}, DType::kI32),
                  Tensor::empty({patches * Taps::kCount, 1}, DType::kF32)};
  auto* entry = taps.entries.data<int32_t>();
  auto* weight = taps.weights.data<float>();
  const auto width = static_cast<int32_t>(side);
  size_t patch = 0;
  for (const PatchGrid& grid : grids)
    for (int64_t i = 0; i < grid.patches(); ++i, ++patch) {
      const Side row = side_of(places.rows[patch], grid.rows, side),
                 column = side_of(places.columns[patch], grid.columns, side);
      for (const auto& [at, part] : {std::pair{row.low, 1 - row.above}, {row.high, row.above}}) {
        *entry++ = at * width + column.low;
        *weight++ = part * (1 - column.above);
        *entry++ = at * width + column.high;
        *weight++ = part * column.above;
      }
    }
  return taps;
}

}  // namespace temper::towers
