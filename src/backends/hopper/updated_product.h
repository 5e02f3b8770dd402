#pragma once
#include "backends/gpu_gemm/updated_product.h"

namespace temper::backends {

// By a kernel of our own for compute capability 9.0 and bfloat16, which adds updates before d is
// written. Rows go to cuBLASLt that have no updates, whose operands it cannot copy (ranks and first columns
// that are no multiples of 8), or whose tiles fill less of their last round on the GPU than that: cuBLASLt
// has smaller ones. Returns how many rows the kernel computed. An infinite low makes its row NaN up to 15
// columns next to the update, and with y in gate as in up.
int64_t multiply_and_update_on_hopper(const UpdatedProduct& product, double least_filled = 0.75);

}  // namespace temper::backends
