#pragma once
#include "backends/onednn/tiles/tile_kernels.h"

namespace temper::backends::avx512 {

// TileKernels' short_dots.
void short_float_dots(const Rows& a, const Tile& tile);

}  // namespace temper::backends::avx512
