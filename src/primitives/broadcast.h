#pragma once
#include "tensor/shape.h"

namespace temper::primitives {

// Sizes aligned at the right; 1 stretches.
Shape broadcast_shape(const Shape& a, const Shape& b);

// How two compact tensors lie under the result of their broadcast, its elements taken in order. Dimensions of
// size 1 are left out, and neighbours that all three walk through alike are one.
struct Broadcast {
  int ndim = 0;
  int64_t sizes[Shape::kMaxDims] = {};
  int64_t a_steps[Shape::kMaxDims] = {}, b_steps[Shape::kMaxDims] = {};  // in elements; 0 where stretched
};
Broadcast broadcast(const Shape& out, const Shape& a, const Shape& b);

}  // namespace temper::primitives
