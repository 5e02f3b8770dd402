#pragma once
#include <cuda_fp8.h>

#include "backends/gpu/device_code.h"
#include "ops/kernel.h"
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

// A magnitude to the nearest multiple of its step, ties to even: a sum with a number of which the last bit is
// one step rounds. That number is the magnitude's exponent, at least `least`, times `up`, a power of two.
__device__ inline float to_steps(float magnitude, uint32_t least, float up) {
  const float exponent = __uint_as_float(max(__float_as_uint(magnitude) & 0x7F800000u, least));
  return __fmaf_rn(-exponent, up, __fmaf_rn(exponent, up, magnitude));
}

// Two numbers rounded to E4M3, beyond its ends to these.
__device__ inline float2 e4m3_of(float first, float second) {
  const __nv_fp8x2_storage_t codes =
      __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, __NV_E4M3);
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
}

// quant::round_to. kInteger: of elements that are integers, whose steps are all alike.
template <bool kInteger>
struct Rounding {
  explicit Rounding(const quant::Element& element)
      : lowest(element.lowest),
        largest(element.largest),
        least(static_cast<uint32_t>(element.least_exponent + 127) << 23),
        up(static_cast<float>(1 << (23 - element.mantissa_bits))),
        high(1.5f * std::bit_cast<float>(least) * up),
        is_e4m3(element == quant::e4m3()) {}

  __device__ float operator()(float x) const {
    const float clipped = least_of(largest_of(x, lowest), largest);
    if constexpr (kInteger) return __fsub_rn(__fadd_rn(clipped, high), high);
    return __uint_as_float(__float_as_uint(to_steps(fabsf(clipped), least, up)) |
                           (__float_as_uint(clipped) & 0x80000000u));
  }
  // Of many. GPUs from compute capability 8.9 on have instructions for pairs of E4M3.
  template <int N>
  __device__ void all(float (&x)[N]) const {
#if __CUDA_ARCH__ >= 890
    if constexpr (!kInteger && N % 2 == 0) {
      if (is_e4m3) {
#pragma unroll
        for (int k = 0; k < N; k += 2) {
          const float2 pair = e4m3_of(x[k], x[k + 1]);
          x[k] = pair.x;
          x[k + 1] = pair.y;
        }
        return;
      }
    }
#endif
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = (*this)(x[k]);
  }

  float lowest, largest;
  uint32_t least;
  float up, high;  // high: a number of which the last bit is one step, far enough from its exponent's ends
                   // for both signs
  bool is_e4m3;
};

// x / d, rounded once, for many x: from a quotient that is at most one unit of the last place away its exact
// remainder gives the nearest one (Markstein, "Computation of elementary functions on the IBM RISC
// System/6000 processor", 1990). That holds away from the ends of the range: `quick` says whether d is, and x
// must be.
struct Quotient {
  Quotient() = default;
  __device__ explicit Quotient(float divisor) {
    d = divisor;
    inverse = __frcp_rn(d);
    quick = d >= 0x1p-60f && d <= 0x1p60f;
  }

  __device__ float quickly(float x) const {
    const float rest = __fmul_rn(__fmaf_rn(-d, inverse, 1), inverse);
    return nearest(__fmaf_rn(x, inverse, __fmul_rn(x, rest)), x);
  }
  // Of x with up to 11 significant bits, as bfloat16, float16 and codes of integers have: the product is near
  // enough. (Of every such significand and every significand of d it was tried.)
  __device__ float of_short(float x) const { return nearest(__fmul_rn(x, inverse), x); }
  __device__ float exactly(float x) const { return __fdiv_rn(x, d); }

  float d, inverse;
  bool quick;

 private:
  __device__ float nearest(float near, float x) const {
    return __fmaf_rn(__fmaf_rn(-near, d, x), inverse, near);
  }
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
      for (int k = 0; k < N; ++k) x[k] = back_.of_short(round(__fmul_rn(x[k], by_)));
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
    for (int k = 0; k < N; ++k) x[k] = __fmul_rn(x[k], factors_.by);
    round.all(x);
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = __fmul_rn(x[k], factors_.back);
  }

 private:
  quant::Factors factors_;
};

template <bool kInteger>
class Faking<quant::Scaling::kScales, kInteger> {
 public:
  __device__ void take(const quant::Format& format, float amax) {
    const quant::Factors factors = quant::factors_of(format, amax);
    by_ = Quotient(factors.by);
    back_ = factors.back;
  }
  template <int N>
  __device__ void fake(const Rounding<kInteger>& round, float, float (&x)[N]) const {
    constexpr float kMost = 0x1p60f;
    bool quick = by_.quick;
#pragma unroll
    for (int k = 0; k < N; ++k) quick &= fabsf(x[k]) <= kMost;
    if (quick) {
      // What corrects a product makes 0 of -0.
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = copysignf(by_.quickly(x[k]), x[k]);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = by_.exactly(x[k]);
    }
    round.all(x);
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = __fmul_rn(x[k], back_);
  }

 private:
  Quotient by_;
  float back_ = 1;
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
    const float scale = scale_of(block_amax);
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

  // Of bfloat16, where nothing can be clipped or become too small: `scale` is scale_of() the block.
  __device__ static bool is_plain(float scale, float block_amax) {
    return scale >= 0x1p-60f && scale <= 1 && block_amax <= __fmul_rn(scale, 6.9f);
  }
  // Two elements of such a block, in a word.
  __device__ static uint32_t fake_pair(uint32_t pair, const Quotient& by) {
    uint32_t x;  // with 0 for -0
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(pair), "r"(0x3F803F80u), "r"(0u));
    const float first = fake_plain(__uint_as_float(x << 16 & 0x7FFFFFFFu), by),
                second = fake_plain(__uint_as_float(x & 0x7FFF0000u), by);
    const __nv_bfloat162 magnitudes = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&magnitudes) | (x & 0x80008000u);
  }

  // What the elements of a block are divided by and multiplied with; NaN where there is one.
  __device__ float scale_of(float block_amax) const {
    const bool finite = block_amax < HUGE_VALF && amax_ < HUGE_VALF;
    return finite ? __fmul_rn(block_scale(block_amax), global_) : __uint_as_float(0x7FC00000u);
  }

 private:
  __device__ static float fake_plain(float magnitude, const Quotient& by) {
    constexpr uint32_t kLeast = 127u << 23;  // of E2M1
    return __fmul_rn(to_steps(by.of_short(magnitude), kLeast, 0x1p22f), by.d);
  }
  // quant::block_scale
  __device__ float block_scale(float block_amax) const {
    if (!(global_ > 0) || block_amax == 0) return 1;
    const bool quick = most_.quick && block_amax >= 0x1p-60f && block_amax <= 0x1p60f;
    const float scale = quick ? most_.quickly(block_amax) : most_.exactly(block_amax);
    if (scale == 0) return 1;
#if __CUDA_ARCH__ >= 890
    return e4m3_of(fmaxf(scale, 0x1p-9f), 0).x;
#else
    return quant::round_to(quant::e4m3(), fmaxf(scale, 0x1p-9f));
#endif
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

// The largest magnitude of a block, whose packs are those of `lanes` adjacent threads; NaN if one of its
// elements is.
template <class T, int N>
__device__ float block_amax(const Pack<T, N>& pack, int lanes) {
  float amax;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(pack.values);
    __nv_bfloat162 most = __habs2(pairs[0]);
#pragma unroll
    for (int k = 1; k < N / 2; ++k) most = __hmax2_nan(most, __habs2(pairs[k]));
    amax = largest_of(__low2float(most), __high2float(most));
  } else {
    amax = fabsf(widen(pack.values[0]));
#pragma unroll
    for (int k = 1; k < N; ++k) amax = largest_of(amax, fabsf(widen(pack.values[k])));
  }
  for (int lane = 1; lane < lanes; lane *= 2)
    amax = largest_of(amax, __shfl_xor_sync(0xffffffffu, amax, lane));
  return amax;
}

template <quant::Scaling kScaling, bool kInteger, class T, int N>
__device__ Pack<T, N> faked(const Faking<kScaling, kInteger>& faking, const Rounding<kInteger>& round,
                            float block_amax, const Pack<T, N>& pack) {
  if constexpr (kScaling == quant::Scaling::kTwoLevels && std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    const float scale = faking.scale_of(block_amax);
    if (faking.is_plain(scale, block_amax)) {
      const Quotient by(scale);
      Pack<T, N> out;
#pragma unroll
      for (int k = 0; k < N / 2; ++k)
        reinterpret_cast<uint32_t*>(out.values)[k] =
            faking.fake_pair(reinterpret_cast<const uint32_t*>(pack.values)[k], by);
      return out;
    }
  }
  float x[N];
  widen_all(pack, x);
  if constexpr (kScaling == quant::Scaling::kZeroPoints)
    faking.template fake<sizeof(T) == 2>(x);
  else
    faking.fake(round, block_amax, x);
  return narrow_all<T>(x);
}

constexpr bool finds_blocks(quant::Scaling scaling) {
  return scaling == quant::Scaling::kTwoLevels || scaling == quant::Scaling::kPowersOfTwo;
}

// Calls f.template operator()<scaling, whether elements are integers>(); formats with zero points are
// excluded.
template <class F>
void visit_scaling(const quant::Format& format, F&& f) {
  switch (format.scaling) {
    case quant::Scaling::kIntegers:
      return f.template operator()<quant::Scaling::kIntegers, true>();
    case quant::Scaling::kFloats:
      return f.template operator()<quant::Scaling::kFloats, false>();
    case quant::Scaling::kZeroPoints:
      invariant(false, "refuse_format lets nothing with zero points come here");
      return;
    case quant::Scaling::kScales:
      return format.element.integer ? f.template operator()<quant::Scaling::kScales, true>()
                                    : f.template operator()<quant::Scaling::kScales, false>();
    case quant::Scaling::kTwoLevels:
      return f.template operator()<quant::Scaling::kTwoLevels, false>();
    case quant::Scaling::kPowersOfTwo:
      return format.element.integer ? f.template operator()<quant::Scaling::kPowersOfTwo, true>()
                                    : f.template operator()<quant::Scaling::kPowersOfTwo, false>();
  }
}

// Of formats that the arithmetic above is not for.
inline ops::Refusal refuse_format(const quant::Format& format) {
  using quant::Scaling;
  if (format.has_zero_points()) return "integers with zero points are not rounded here";
  if (format.has_blocks() && format.block != 16 && format.block != 32)
    return "blocks must have 16 or 32 elements";
  const bool any = format.scaling == Scaling::kPowersOfTwo || format.scaling == Scaling::kScales,
             integers = format.scaling == Scaling::kIntegers;
  if (!any && integers != format.element.integer)
    return "integers must be scaled as integers, by scales or by powers of two, and other elements otherwise";
  if (format.scaling == Scaling::kTwoLevels && format.element != quant::kE2M1)
    return "scales of two levels must be of elements of E2M1";
  return std::nullopt;
}

}  // namespace temper::backends
