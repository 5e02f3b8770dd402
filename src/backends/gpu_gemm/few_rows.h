#pragma once
#include "ops/linear/linear.h"

namespace temper::backends {

// y = x weightᵀ + bias for so few rows of x that reading the weight is all that takes time, as when text is
// generated: a warp for each row of the weight, sums in a fixed order. Codes are read as they are.
bool are_few_rows(const Tensor& x, const Tensor& weight);
Tensor few_rows(const ops::Linear& op);

}  // namespace temper::backends
