#pragma once
#include "ops/checks.h"
#include "ops/kernel.h"

// Weights of linears, which may be kept in 8 bits (primitives/quantized.h).
namespace temper::ops {

// A compact matrix of x's dtype, or codes with a scale for each row.
inline void check_weight(std::string_view op, const Var& weight, DType dtype) {
  check_ndim(op, "weight", weight.value, 2);
  check_dtype(op, "weight", weight.value, weight.scales.defined() ? DType::kF8E4M3 : dtype);
  if (weight.scales.defined()) check_shape(op, "scales", weight.scales, {weight.shape()[0]});
  check_contiguous(op, "weight", weight.value);
}

// Sets what the kernel's forward reads of a weight.
template <class Op>
void set_weight(Op& op, const Var& weight, const Kernel<Op>& kernel) {
  const bool codes = weight.scales.defined();
  if (codes && (kernel.reads_codes == nullptr || !kernel.reads_codes(op.x, weight.value))) {
    op.weight = weight.saved().get();
  } else {
    op.weight = weight.value;
    op.scales = weight.scales;
  }
}

}  // namespace temper::ops
