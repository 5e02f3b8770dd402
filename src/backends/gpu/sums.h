#pragma once
#include "autograd/grad_slot.h"

namespace temper::backends {

// target (+)= Σ over the rows of partial [parts, columns] float32, in a fixed order. The target's buffer has
// `columns` elements, float32 or bfloat16.
void add_column_sums(const Tensor& partial, const GradTarget& target);

// target (+)= Σ over the rows of a compact matrix [rows, columns], in float32 and a fixed order. On a device
// that only counts it takes its workspace and computes nothing.
void add_row_sums(const Tensor& rows, const GradTarget& target);

}  // namespace temper::backends
