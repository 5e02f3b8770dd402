#pragma once
#include "autograd/tape.h"
#include "quant/format.h"

// Rounding to number formats, of which the composition of ops/fake_quantize is made.
namespace temper::primitives {

// x [..., run] float32, compact, encoded and decoded (quant/format.h). amax stretches to x; in formats with
// blocks `run` is one block, and amax is that of the whole, or undefined where the format needs none.
Tensor fake_quantized(const quant::Format& format, const Tensor& x, const Tensor& amax);

// y, whose gradient goes to x as it is or, where `limited` (x's values in float32, in any shape that amax
// stretches to) is defined, where |limited| <= amax.
Var straight_through(Tape& tape, const Var& x, const Tensor& y, const Tensor& limited, const Tensor& amax);

}  // namespace temper::primitives
