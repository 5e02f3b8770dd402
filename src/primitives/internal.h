#pragma once
#include "primitives/primitives.h"

namespace temper::primitives {

// The values as compact float32.
inline Tensor floats(const Tensor& tensor) { return tensor.to(DType::kF32).contiguous(); }

// Passes a float32 gradient to a value: rounded to its dtype, except where a parameter collects float32.
inline void give(const Var& input, const Tensor& grad) {
  if (!input.requires_grad()) return;
  input.slot->add(input.slot->persistent() ? grad : grad.to(input.dtype()));
}

}  // namespace temper::primitives
