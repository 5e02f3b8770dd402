#pragma once
#include "backends/gpu_gemm/narrow_gradients.h"

namespace temper::backends {

// By a kernel of our own for compute capability 9.0 and bfloat16, which reads dy once; returns
// whether it did. What it is not for goes to cuBLASLt: fewer rows, where launches are what takes time, ranks
// and first columns that are no multiples of 8, ranks of more than 32, more than four slices, slices that
// share a gradient, and sums over parts of the rows and columns that would take more than a product's
// workspace. Infinite values of dy next to a slice make its dlow NaN.
bool narrow_gradients_on_hopper(const NarrowGradients& op, int64_t fewest_rows = 1024);

}  // namespace temper::backends
