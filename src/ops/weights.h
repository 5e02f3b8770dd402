#pragma once
#include "ops/checks.h"
#include "ops/kernel.h"
#include "primitives/quantized.h"

// Weights of linears, which may be kept in 8 bits (primitives/quantized.h).
namespace temper::ops {

// A compact matrix of x's dtype, or codes with a scale for each row.
inline void check_weight(std::string_view op, const primitives::Matrix& weight, DType dtype) {
  check_ndim(op, "weight", weight.value.value, 2);
  check_dtype(op, "weight", weight.value.value, weight.in_8_bits() ? DType::kF8E4M3 : dtype);
  if (weight.in_8_bits()) check_shape(op, "scales", weight.scales, {weight.shape()[0]});
  check_contiguous(op, "weight", weight.value.value);
}

// Whether forward reads a weight in 8 bits as it is for such an x; otherwise it is given what the codes mean.
using ReadsCodes = bool(const Tensor& x, const Tensor& codes);

// Sets what the kernel's forward reads of a weight.
template <class Op>
void set_weight(Op& op, const primitives::Matrix& weight, const Kernel<Op>& kernel) {
  const Tensor& kept = weight.value.value;
  ReadsCodes* const reads = kernel.traits.reads_codes;
  if (weight.in_8_bits() && (reads == nullptr || !reads(op.x, kept))) {
    op.weight = weight.value.saved().get();
  } else {
    op.weight = kept;
    op.scales = weight.scales;
  }
}

}  // namespace temper::ops
