#pragma once
#include "primitives/device_functions.h"
#include "primitives/primitives.h"

namespace temper::primitives {

// The values as compact float32.
inline Tensor floats(const Tensor& tensor) { return tensor.to(DType::kF32).contiguous(); }

inline Tensor empty(const Shape& shape, DType dtype, Device device) {
  return Tensor::empty(shape, dtype, MemoryTag::kActivations, device);
}
inline Tensor empty_floats(const Shape& shape, Device device) { return empty(shape, DType::kF32, device); }

// The float32 gradient of an input, for a device to write to; undefined if it is not needed.
inline Tensor wanted_gradient(const Var& input) {
  return input.requires_grad() ? empty_floats(input.shape(), input.value.device()) : Tensor();
}

inline void check_alike(const Var& a, const Var& b) {
  if (a.dtype() != b.dtype()) fail("{} combined with {}", to_string(a.dtype()), to_string(b.dtype()));
  if (a.value.device() != b.value.device())
    fail("a tensor on {} combined with one on {}", to_string(a.value.device()), to_string(b.value.device()));
}

// Passes a float32 gradient to a value: rounded to its dtype, except where a parameter collects float32.
inline void give(const Var& input, const Tensor& grad) {
  if (!input.requires_grad()) return;
  input.slot->add(input.slot->persistent() ? grad : grad.to(input.dtype()));
}

}  // namespace temper::primitives
