#pragma once
#include "backends/gpu/fake_elements.h"
#include "quant/zero_points.h"

namespace temper::backends {

// Of integers with zero points: x / step becomes a whole number between quant::Multiples. What lies beyond
// these times the step is clipped before it is divided: the quotient is then so near to a whole number that
// it becomes that.
template <>
class Faking<quant::Scaling::kZeroPoints, true> {
 public:
  __device__ void take_range(const quant::Element& element, float low, float high) {
    const float least = fminf(low, 0), range = fmaxf(high, 0) - least;
    quant::ZeroPoint at;
    quick_ = high - low <= kMost && range <= kMost && range > 0x1p-24f;  // not of NaN
    if (quick_) {
      step_ = Quotient(Quotient(element.largest - element.lowest).quickly(range));
      at = {step_.d, fminf(element.lowest - whole(step_.quickly(least)), element.largest)};
    } else {
      at = quant::zero_point_of(element, low, high);
      step_.d = at.step;
    }
    multiples_ = quant::multiples_of(element, at);
    low_ = multiples_.least * at.step;
    high_ = multiples_.most * at.step;
  }
  // kShort: the elements have at most 11 significant bits.
  template <bool kShort, int N>
  __device__ void fake(float (&x)[N]) const {
    if (quick_) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float clipped = least_of(largest_of(x[k], low_), high_);
        x[k] = __fmul_rn(whole(kShort ? step_.of_short(clipped) : step_.quickly(clipped)), step_.d);
      }
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float quotient = step_.exactly(x[k]);
        x[k] = __fmul_rn(whole(least_of(largest_of(quotient, multiples_.least), multiples_.most)), step_.d);
      }
    }
  }

 private:
  static constexpr float kMost = 0x1p60f;

  __device__ static float whole(float x) { return __fsub_rn(__fadd_rn(x, 0x1.8p23f), 0x1.8p23f); }

  quant::Multiples multiples_;
  Quotient step_;
  float low_ = 0, high_ = 0;
  bool quick_ = false;
};

}  // namespace temper::backends
