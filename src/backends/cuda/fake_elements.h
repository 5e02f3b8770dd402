#pragma once
#include "backends/gpu/device_code.h"
#include "quant/format.h"

// The arithmetic of quant/format.h as GPUs compute it fast, with the same bits.
namespace temper::backends {

// NaN passes, which fminf and fmaxf do not let.
__device__ inline float least_of(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}
__device__ inline float largest_of(float a, float b) {
  float largest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(a), "f"(b));
  return largest;
}

// quant::round_to. kInteger: of elements that are integers, whose steps are all alike.
template <bool kInteger>
struct Rounding {
  explicit Rounding(const quant::Element& element)
      : lowest(element.lowest),
        largest(element.largest),
        least(static_cast<uint32_t>(element.least_exponent + 127) << 23),
        up(static_cast<uint32_t>(23 - element.mantissa_bits) << 23),
        high(1.5f * std::bit_cast<float>(least + up)) {}

  __device__ float operator()(float x) const {
    const float clipped = least_of(largest_of(x, lowest), largest);
    if constexpr (kInteger) return __fsub_rn(__fadd_rn(clipped, high), high);
    const uint32_t bits = __float_as_uint(clipped);
    const float above = __uint_as_float(max(bits & 0x7F800000u, least) + up);
    const float rounded = __fsub_rn(__fadd_rn(fabsf(clipped), above), above);
    return __uint_as_float(__float_as_uint(rounded) | (bits & 0x80000000u));
  }

  float lowest, largest;
  uint32_t least, up;
  float
      high;  // a number of which the last bit is one step, far enough from its exponent's ends for both signs
};

// x / d, rounded once, for many x: from a quotient that is at most one unit of the last place away its exact
// remainder gives the nearest one (Markstein, "Computation of elementary functions on the IBM RISC
// System/6000 processor", 1990). That holds away from the ends of the range: `quick` says whether d is, and x
// must be.
struct Quotient {
  __device__ Quotient() = default;
  __device__ explicit Quotient(float divisor) {
    d = divisor;
    inverse = __frcp_rn(d);
    rest = __fmul_rn(__fmaf_rn(-d, inverse, 1), inverse);
    quick = d >= 0x1p-60f && d <= 0x1p60f;
  }

  __device__ float quickly(float x) const {
    const float near = __fmaf_rn(x, inverse, __fmul_rn(x, rest));
    return __fmaf_rn(__fmaf_rn(-near, d, x), inverse, near);
  }
  __device__ float exactly(float x) const { return __fdiv_rn(x, d); }

  float d, inverse, rest;
  bool quick;
};

// What elements that share an amax have in common, and how a pack of them is quantized and dequantized.
// block_amax is that of their block, in formats that have them; NaN where one of its elements is.
template <quant::Scaling kScaling, bool kInteger>
class Faking;

template <>
class Faking<quant::Scaling::kIntegers, true> {
 public:
  __device__ void take(const quant::Format& format, float amax) {
    const quant::Factors factors = quant::factors_of(format, amax);
    by_ = factors.by;
    back_ = Quotient(factors.back);
  }
  template <int N>
  __device__ void fake(const Rounding<true>& round, float, float (&x)[N]) const {
    if (back_.quick) {
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = back_.quickly(round(__fmul_rn(x[k], by_)));
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = back_.exactly(round(__fmul_rn(x[k], by_)));
    }
  }

 private:
  float by_ = 0;
  Quotient back_;
};

template <>
class Faking<quant::Scaling::kFloats, false> {
 public:
  __device__ void take(const quant::Format& format, float amax) {
    factors_ = quant::factors_of(format, amax);
  }
  template <int N>
  __device__ void fake(const Rounding<false>& round, float, float (&x)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = __fmul_rn(round(__fmul_rn(x[k], factors_.by)), factors_.back);
  }

 private:
  quant::Factors factors_;
};

template <>
class Faking<quant::Scaling::kTwoLevels, false> {
 public:
  __device__ void take(const quant::Format&, float amax) {
    amax_ = amax;
    global_ = quant::global_scale(amax);
    most_ = Quotient(6 * global_);
  }
  template <int N>
  __device__ void fake(const Rounding<false>& round, float block_amax, float (&x)[N]) const {
    constexpr float kMost = 0x1p60f;
    float scale = __uint_as_float(0x7FC00000u);
    if (block_amax < HUGE_VALF && amax_ < HUGE_VALF) scale = __fmul_rn(block_scale(block_amax), global_);
    const Quotient by(scale > 0 || scale != scale ? scale : 1);
    if (by.quick && block_amax <= kMost) {
      // Quotients that are too small for float32 become 0, which has no sign here: x / d <= 2^-150.
      const float nothing = __fmul_rd(__fmul_rn(by.d, 0x1p-50f), 0x1p-100f);
#pragma unroll
      for (int k = 0; k < N; ++k)
        x[k] = __fmul_rn(round(by.quickly(fabsf(x[k]) <= nothing ? 0.f : x[k])), scale);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = __fmul_rn(round(__fadd_rn(by.exactly(x[k]), 0)), scale);
    }
  }

 private:
  // quant::block_scale
  __device__ float block_scale(float block_amax) const {
    if (!(global_ > 0) || block_amax == 0) return 1;
    const bool quick = most_.quick && block_amax >= 0x1p-60f && block_amax <= 0x1p60f;
    const float scale = quick ? most_.quickly(block_amax) : most_.exactly(block_amax);
    if (scale == 0) return 1;
    return quant::round_to(quant::e4m3(), fmaxf(scale, 0x1p-9f));
  }

  float amax_ = 0, global_ = 0;
  Quotient most_;
};

template <bool kInteger>
class Faking<quant::Scaling::kPowersOfTwo, kInteger> {
 public:
  __device__ void take(const quant::Format& format, float) { largest_ = format.element.largest; }
  template <int N>
  __device__ void fake(const Rounding<kInteger>& round, float block_amax, float (&x)[N]) const {
    const float nan = __uint_as_float(0x7FC00000u);
    quant::Element element;
    element.largest = largest_;
    const uint32_t code = quant::power_code(element, block_amax);
    const bool finite = block_amax < HUGE_VALF;
    // A product with the inverse, which is a power of two as well, is the quotient.
    const float by = finite ? quant::power_of(254 - code) : nan, back = finite ? quant::power_of(code) : nan;
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = __fmul_rn(round(__fmul_rn(x[k], by)), back);
  }

 private:
  float largest_ = 1;
};

}  // namespace temper::backends
