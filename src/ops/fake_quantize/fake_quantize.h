#pragma once
#include "ops/selection.h"
#include "quant/zero_points.h"

namespace temper::ops {

// Factors of columns, by which values are multiplied before they are rounded and divided afterwards: y is
// rounded(x · by) · back, in float32, rounded once to x's dtype. The kernel is one of float32. Gradients are
// as without factors, since by · back is 1; what clips is |x · by|.
struct ColumnFactors {
  // [1, columns], or of experts [experts, 1, columns]: float32, each the reciprocal of the other. Undefined:
  // none.
  Tensor by = {}, back = {};
};

// What has been rounded is rounded once more before it is divided by factors, all in float32
// (nvidia-modelopt's W4A8: INT4 in blocks, then FP8). Gradients are those of the first rounding alone: the
// second amax is at least every one of the first, so that it clips nothing more. The kernel is one of
// float32, whatever x is.
struct SecondRounding {
  Tensor amax = {};  // [of experts, of rows, of columns] float32, as FakeQuantize has it; undefined: none
  quant::Format format = {};
};

// y is x as it comes back from a number format: encoded and decoded by the arithmetic of quant/format.h, in
// float32, rounded once to x's dtype. All experts of a stacked weight are one call. The gradient of a
// rounding is that of the identity (Bengio et al., "Estimating or Propagating Gradients Through Stochastic
// Neurons for Conditional Computation", 2013): it passes, or with `clips` where |x| ≤ amax in float32, and is
// 0 elsewhere, also for NaN. Integers with zero points (quant/zero_points.h) have both ends of a range, amax
// the upper one and low the lower one, and `clips` passes where low ≤ x ≤ amax.
struct FakeQuantize {
  static constexpr std::string_view kName = "fake_quantize", kField = "fake_quantize";
  struct Signature {
    DType dtype = DType::kF32;
    quant::Format format = {};
  };

  Tensor x;     // [rows, columns] or [experts, rows, columns]; outer strides of any size, rows compact
  Tensor amax;  // [of experts, of rows, of columns] float32, compact: divisors of x's (quant/groups.h); with
                // blocks one for each matrix or one in all; undefined where the format needs none
  quant::Format format = {};
  // Of kernels with Traits::wide, which then give the bits of x · by, both roundings and · back one after the
  // other in float32. amax of `again` has one column, and its format is E4M3 by scales.
  ColumnFactors factors = {};
  SecondRounding again = {};
  Tensor low = {};  // of amax's shape and dtype, at most 0; undefined: the format has no zero points

  using Forward = Tensor(const FakeQuantize&);  // y, x's shape and dtype, compact
  // Clips in place: `grad`, y's gradient, becomes x's (with factors |x · by| ≤ amax). Of x's shape, compact,
  // of x's dtype or, as weights' gradients are, float32.
  using Backward = void(const FakeQuantize&, const Tensor& grad);
  using Compose = Var(Tape&, const Var& x, const FakeQuantize& op, bool clips);
  struct Traits {
    bool wide = false;  // passes take factors and `again`, of x in any dtype
    bool operator==(const Traits&) const = default;
  };
};

// Formats with blocks of their own (NVFP4, MX) find their scales in x each time: `clips` is for the others.
Var fake_quantize(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const Tensor& amax,
                  const quant::Format& format, bool clips = false, const ColumnFactors& factors = {});
// Of a format with zero points, by both ends of its ranges.
Var fake_quantize(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const quant::Bounds& bounds,
                  const quant::Format& format, bool clips = false);

// The same of a parameter that nothing else reads, whose gradient is then formed and clipped in its own
// memory.
struct OfParameter {
  Shape shape;  // of x as the formula has it, where the parameter [experts · rows, columns] is kept as one
                // matrix
  bool clips = false;
  ColumnFactors factors = {};
  SecondRounding again = {};
  Tensor low = {};  // amax's shape
};
Var fake_quantize_parameter(Tape& tape, Bound<FakeQuantize> bound, const Var& x, const Tensor& amax,
                            const quant::Format& format, const OfParameter& how);

}  // namespace temper::ops
