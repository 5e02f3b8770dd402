#pragma once
#include "backends/onednn/tile.h"

namespace temper::backends {

// Products by AVX-512, on the calling thread. float32 ones take operands of either dtype, widened as they are
// packed; bfloat16 ones take two bfloat16 operands and multiply pairs of them (VDPBF16PS), sums are float32.
// Both add up k in the same blocks whatever m and n are.
bool has_avx512_tile(DType products);  // float32 or bfloat16, on this processor
void avx512_tile(const Tile& tile, DType products);

}  // namespace temper::backends
