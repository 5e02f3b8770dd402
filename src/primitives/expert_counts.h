#pragma once
#include "tensor/tensor.h"

// What an update of a mixture does with counts of chosen experts, on the device that has them: integers, so
// that a sum does not depend on its order. Compact tensors.
namespace temper::primitives {

// counts [n] int32 += more [n] int32, each below 2^31.
void add_counts(const Tensor& counts, const Tensor& more);

// The update without a loss (Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-
// Experts", 2024): `biases` [experts] float32 of experts that were chosen more often than the mean go down by
// `rate`, of those that were chosen less often up. `counts` [experts + 1] int32, whose last entry is not
// read. Nothing changes where `norm`, [1] float32, is not finite.
void move_biases(const Tensor& biases, const Tensor& counts, float rate, const Tensor& norm);

}  // namespace temper::primitives
