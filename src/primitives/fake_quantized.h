#pragma once
#include "autograd/tape.h"
#include "quant/format.h"

// Rounding to number formats, of which the composition of ops/fake_quantize is made.
namespace temper::primitives {

// x [..., run] float32, compact, encoded and decoded (quant/format.h). amax stretches to x; in formats with
// blocks `run` is one block, and amax is that of the whole, or undefined where the format needs none.
Tensor fake_quantized(const quant::Format& format, const Tensor& x, const Tensor& amax);

// The same of integers with zero points (quant/zero_points.h); low and high stretch to x.
Tensor fake_with_zeros(const quant::Element& element, const Tensor& x, const Tensor& low, const Tensor& high);

// x of any floating-point dtype times the factors of its columns, float32, that stretch to it: float32.
Tensor scaled_columns(const Tensor& x, const Tensor& factors);

// In place, of `limited`'s shape and any floating-point dtype: 0 where |limited| > amax or, with `low`, where
// limited is not from low to amax. Both stretch to it.
void clip_gradient(const Tensor& grad, const Tensor& limited, const Tensor& amax, const Tensor& low = {});

// y, whose gradient goes to x as it is or, where `limited` (x's values in float32, in any shape that amax
// stretches to) is defined, where clip_gradient() leaves it.
Var straight_through(Tape& tape, const Var& x, const Tensor& y, const Tensor& limited, const Tensor& amax,
                     const Tensor& low = {});

}  // namespace temper::primitives
