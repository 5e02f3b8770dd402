#pragma once
#include "ops/checks.h"
#include "ops/kernel.h"
#include "primitives/quantized.h"

// Weights of linears, which may be kept in 8 bits (primitives/quantized.h).
namespace temper::ops {

// A compact matrix of x's dtype, or codes with a scale for each row.
inline void check_weight(std::string_view op, const primitives::Matrix& weight, DType dtype,
                         std::string_view name = "weight") {
  check_ndim(op, name, weight.value.value, 2);
  check_dtype(op, name, weight.value.value, weight.in_8_bits() ? DType::kF8E4M3 : dtype);
  if (weight.in_8_bits()) check_shape(op, "scales", weight.scales, {weight.shape()[0]});
  check_contiguous(op, name, weight.value.value);
}

// Whether forward reads a weight in 8 bits as it is for such an x; otherwise it is given what the codes mean.
using ReadsCodes = bool(const Tensor& x, const Tensor& codes);

// Sets what a kernel's forward reads of a weight: itself, its codes with their scales, or what these mean.
inline void set_matrix(const primitives::Matrix& matrix, const Tensor& x, ReadsCodes* reads, Tensor& value,
                       Tensor& scales) {
  const Tensor& kept = matrix.value.value;
  if (matrix.in_8_bits() && (reads == nullptr || !reads(x, kept))) {
    value = matrix.value.saved().get();
  } else {
    value = kept;
    scales = matrix.scales;
  }
}
template <class Op>
void set_weight(Op& op, const primitives::Matrix& weight, const Kernel<Op>& kernel) {
  set_matrix(weight, op.x, kernel.traits.reads_codes, op.weight, op.scales);
}

}  // namespace temper::ops
