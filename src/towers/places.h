#pragma once
#include <span>
#include <vector>

#include "layers/rope.h"
#include "layers/tower.h"

// Where the patches of pictures stand. Rows of patches are in the order of Qwen's preprocessing: frame by
// frame, in a frame the blocks of merge × merge patches row by row, in a block its patches row by row. A
// block becomes one token of the text.
namespace temper::towers {

using layers::PatchGrid;

// The row and the column of each patch in its frame.
struct Places {
  std::vector<int32_t> rows, columns;
};
Places places_of(std::span<const PatchGrid> grids, int64_t merge);

// [patches, head_dim / 2] each: with inv_i = theta^(-4 i / head_dim), i < head_dim / 4, the angles row · inv,
// then column · inv; in float32 (transformers, Qwen2VL's VisionRotaryEmbedding).
layers::RopeTables rotary_tables(const Places& places, int64_t head_dim, double theta = 10000);

// [frames + 1] int32, from 0 to the number of patches: a frame sees itself alone.
Tensor frame_starts(std::span<const PatchGrid> grids);

// Windows of `side` × `side` tokens, cut from each frame's upper left corner, smaller at its right and lower
// ends: row by row, in a window its tokens row by row.
struct Windows {
  std::vector<int32_t> order;  // the tokens, window by window
  Tensor starts;               // [windows + 1] int32, in patches
};
Windows windows_of(std::span<const PatchGrid> grids, int64_t merge, int64_t side);

// A square table of side × side positions over a frame of any size, whose corners lie on the table's
// (align_corners): each patch reads the four entries around its place, by bilinear weights.
struct Taps {
  static constexpr int64_t kCount = 4;
  Tensor entries;  // [patches · 4] int32: above left, above right, below left, below right
  Tensor weights;  // [patches · 4, 1] float32
};
Taps taps_of(std::span<const PatchGrid> grids, const Places& places, int64_t side);

}  // namespace temper::towers
