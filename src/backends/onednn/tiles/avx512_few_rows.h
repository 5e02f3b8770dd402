#pragma once
#include "backends/onednn/tiles/tile_kernels.h"

namespace temper::backends::avx512 {

// TileKernels' few_rows.
void few_float_rows(const Rows& a, const Tile& tile);
void few_pair_rows(const Rows& a, const Tile& tile);

}  // namespace temper::backends::avx512
