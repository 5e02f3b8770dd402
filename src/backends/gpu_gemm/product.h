#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// d = scale op(a) op(b) + bias, or d += scale op(a) op(b) + bias. All are matrices whose rows are compact and
// may have any stride; a and b have one dtype, d the same or float32. Sums are float32; float32 products use
// no shorter format. On a device that only counts it takes its workspace and computes nothing: so kernels of
// products are their own outlines.
struct GpuProduct {
  Tensor a;  // [m, k], or [k, m] when transposed
  Tensor b;  // [k, n], or [n, k] when transposed
  Tensor d;  // [m, n]
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  Tensor bias = {};  // [n], d's dtype, or undefined
  float scale = 1;
  // The bits of each row of d do not depend on the other rows or their number (batch-invariant).
  bool alike = false;
};
void multiply(const GpuProduct& product);
inline constexpr int64_t kProductWorkspace = 64 << 20;  // bytes

}  // namespace temper::backends
