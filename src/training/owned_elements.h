#pragma once
#include "weights/layout.h"

namespace temper::training {

// A copy, on the CPU, of what a rank has of a weight in float32, with `other` in place of what a rank before
// it has, too: every element of the whole counts once.
Tensor counted_once(const Placement& placement, const Tensor& values, float other);

}  // namespace temper::training
