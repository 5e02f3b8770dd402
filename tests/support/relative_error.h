#pragma once
#include "tensor/tensor.h"

// How far tensors of any device and dtype are apart. Where shapes differ, or a value of either is not finite,
// or what is expected is zero and what was found is not, that is infinitely far: no tolerance lets it pass.
// Shapes are compared with their leading dimensions merged: [2, 3, 8] is [6, 8].
namespace temper {

// max |found - expected| / max(floor, max |expected|)
double relative_error(const Tensor& found, const Tensor& expected, double floor = 0);
// ‖found - expected‖ / ‖expected‖, norms over all elements.
double relative_norm_error(const Tensor& found, const Tensor& expected);
// The same for the row that is furthest off, relative to the root mean square of the rows' norms.
double worst_row_error(const Tensor& found, const Tensor& expected);

}  // namespace temper
