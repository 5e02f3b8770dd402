#pragma once
#include "quant/groups.h"

// Largest magnitudes on the device that has the values: nothing waits for them, and graphs capture it.
namespace temper::primitives {

// amax = the larger of itself and of the magnitudes of x's elements in its group (quant/groups.h); NaN counts
// as larger than infinity and stays. x [rows, columns] or [experts, rows, columns] of any floating-point
// dtype, outer strides of any size, rows compact; amax float32, compact, nothing in it below 0. The same of
// the largest values, or of the least ones, where amax has nothing above 0.
void grow_amax(const Tensor& x, const Tensor& amax, quant::Extreme extreme = quant::Extreme::kMagnitude);

// The same from 0 on: float32 of `shape`, tag activations, where x is.
Tensor amax_of(const Tensor& x, const Shape& shape, quant::Extreme extreme = quant::Extreme::kMagnitude);

// What each row's expert has, an amax or factors of columns, float32 [rows, columns]: of_experts
// [experts, 1, columns], ids [rows, 1] int32 in [0, experts), both where the result is.
Tensor rows_of_experts(const Tensor& of_experts, const Tensor& ids);

}  // namespace temper::primitives
