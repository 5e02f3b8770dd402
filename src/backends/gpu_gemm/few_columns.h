#pragma once
#include "backends/gpu_gemm/product.h"

namespace temper::backends {

// A product alike (GpuProduct::alike) of so few columns that the library's algorithms for many rows do not
// run for few: a warp for each element, its sum in one order. bfloat16, b transposed.
bool has_few_columns(const GpuProduct& product);
void multiply_few_columns(const GpuProduct& product);

}  // namespace temper::backends
