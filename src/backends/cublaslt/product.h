#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// d = op(a) op(b) + bias, or d += op(a) op(b). All are matrices whose rows are compact and may have any
// stride; a and b have one dtype, d the same or float32. Sums are float32; float32 products use no shorter
// format.
struct GpuProduct {
  Tensor a;  // [m, k], or [k, m] when transposed
  Tensor b;  // [k, n], or [n, k] when transposed
  Tensor d;  // [m, n]
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  Tensor bias = {};  // [n], d's dtype, or undefined
};
void multiply(const GpuProduct& product);

}  // namespace temper::backends
