// Fake quantization of bfloat16 in pairs: a word of 32 bits has two of them, which become float32 and again
// bfloat16 without moving between lanes. Included like lanes-inl.h, after it.
#if defined(TEMPER_BACKENDS_SIMD_FAKE_PAIRS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BACKENDS_SIMD_FAKE_PAIRS_INL_H
#undef TEMPER_BACKENDS_SIMD_FAKE_PAIRS_INL_H
#else
#define TEMPER_BACKENDS_SIMD_FAKE_PAIRS_INL_H
#endif

#include <cmath>

#include "backends/cpu/lanes-inl.h"
#include "quant/zero_points.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::HWY_NAMESPACE {

// An addition rounds both signs, and there is one zero.
HWY_INLINE Lanes nearest_step(Lanes value, Lanes high) { return hn::Sub(hn::Add(value, high), high); }

// quant::round_to of magnitudes that are at most the largest of the elements.
struct Steps {
  explicit Steps(const quant::Element& element)
      : least(hn::Set(Words(), static_cast<uint32_t>(element.least_exponent + 127) << 23)),
        up(hn::Set(Words(), static_cast<uint32_t>(23 - element.mantissa_bits) << 23)) {}

  HWY_INLINE Lanes operator()(Lanes magnitude) const { return nearest(magnitude, least); }

  // Of elements times a power of two, with `least` times that.
  HWY_INLINE Lanes nearest(Lanes magnitude, hn::Vec<Words> scaled_least) const {
    const Words words;
    const auto exponent =
        hn::Max(hn::And(hn::BitCast(words, magnitude), hn::Set(words, 0x7F800000)), scaled_least);
    const Lanes high = hn::BitCast(Floats(), hn::Add(exponent, up));
    return nearest_step(magnitude, high);
  }

  hn::Vec<Words> least, up;
};

// The factors of neighbouring blocks, which are made together.
constexpr int64_t kBlocks = 64;
struct BlockFactors {
  HWY_ALIGN float by[kBlocks];
  HWY_ALIGN float back[kBlocks];
  HWY_ALIGN float scale[kBlocks];  // quant::block_scale, in kTwoLevels
  bool moderate;                   // Pairs and Levels can fake all of these blocks
};

// Fakes elements and returns how many, 0 where there are no pairs or where numbers are so large or small that
// what is done here would not have the bits of quant::quantized and dequantized.
template <quant::Scaling kScaling, class T>
struct Pairs {
  explicit Pairs(const quant::Element&) {}
  HWY_INLINE int64_t fake_run(const T*, T*, int64_t, const quant::Factors&) const { return 0; }
  HWY_INLINE int64_t fake_range(const T*, T*, int64_t, float, const quant::Multiples&) const { return 0; }
  HWY_INLINE int64_t fake_blocks(const T*, T*, int64_t, int64_t, const BlockFactors&) const { return 0; }
};

// Between these limits factors, their reciprocals and the products of elements with them are neither
// subnormal nor infinite.
constexpr float kSmall = 0x1p-90f, kLarge = 0x1p90f;

// Divisions need products and sums that are rounded once.
#if HWY_NATIVE_FMA && !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
// x / by of bfloat16 or of integers up to 256, with 1 / by, rounded: one correction makes the quotient that
// IEEE division rounds (tried with all mantissas), if no number on the way is too large or too small.
template <class V>
HWY_INLINE V quotient(V x, V by, V inverse) {
  const V guess = hn::Mul(x, inverse);
  return hn::MulAdd(hn::NegMulAdd(guess, by, x), inverse, guess);
}

template <quant::Scaling kScaling>
struct Pairs<kScaling, BFloat16> {
  explicit Pairs(const quant::Element& element)
      : steps(element),
        lowest(fill(element.lowest)),
        largest(fill(element.largest)),
        // In integers all steps are alike: the last bit of this, also less any of them.
        high(hn::BitCast(
            Floats(),
            hn::Set(Words(), static_cast<uint32_t>(element.least_exponent - element.mantissa_bits + 150)
                                     << 23 |
                                 0x400000))),
        integer(element.integer) {}

  // Elements that share factors.
  HWY_INLINE int64_t fake_run(const BFloat16* x, BFloat16* y, int64_t count,
                              const quant::Factors& factors) const {
    const Lanes by = fill(factors.by), back = fill(factors.back);
    if constexpr (kScaling == quant::Scaling::kIntegers) {
      if (!(factors.back >= kSmall && factors.back <= kLarge)) return 0;
      const Lanes inverse = fill(1 / factors.back);
      return each(x, y, count, [&](auto pairs) HWY_ATTR {
        return integers<false>(pairs, [&](Lanes value) HWY_ATTR {
          const Lanes clipped = at_least(lowest, at_most(largest, hn::Mul(value, by)));
          return quotient(nearest_step(clipped, high), back, inverse);
        });
      });
    } else if constexpr (kScaling == quant::Scaling::kFloats) {
      if (factors.by != factors.by) return 0;
      return each(x, y, count, [&](auto pairs) HWY_ATTR {
        return floats<false>(pairs, [&](Lanes value) HWY_ATTR {
          return hn::Mul(steps(at_most(largest, hn::Mul(value, by))), back);
        });
      });
    } else {
      return 0;
    }
  }

  // Elements that share a zero point. What lies beyond the multiples of the step is clipped before it is
  // divided: the quotient is so near to a whole number that it becomes that.
  HWY_INLINE int64_t fake_range(const BFloat16* x, BFloat16* y, int64_t count, float step,
                                const quant::Multiples& multiples) const {
    if (!(step >= kSmall && step <= kLarge)) return 0;
    const Lanes by = fill(step), inverse = fill(1 / step), least = fill(multiples.least * step),
                most = fill(multiples.most * step);
    return each(x, y, count, [&](auto pairs) HWY_ATTR {
      return integers<false>(pairs, [&](Lanes value) HWY_ATTR {
        const Lanes clipped = at_least(least, at_most(most, value));
        return hn::Mul(nearest_step(quotient(clipped, by, inverse), high), by);
      });
    });
  }

  // Blocks of `size` elements.
  HWY_INLINE int64_t fake_blocks(const BFloat16* x, BFloat16* y, int64_t blocks, int64_t size,
                                 const BlockFactors& factors) const {
    if (kScaling != quant::Scaling::kPowersOfTwo || !factors.moderate) return 0;
    const int64_t step = 2 * width();
    if (size % step == 0) {
      for (int64_t block = 0; block < blocks; ++block, x += size, y += size)
        fake_scaled(x, y, size, fill(factors.back[block]));
      return blocks * size;
    }
    if (size != width()) return 0;
    int64_t block = 0;
    for (; block + 2 <= blocks; block += 2, x += step, y += step)
      fake_scaled(x, y, step, of_two(factors.back + block));
    return block * size;
  }

 private:
  using Pair = hn::Vec<Words>;
  using HalfWords = hn::Repartition<uint16_t, Words>;
  static constexpr int64_t kAhead = 1024;  // of elements that are asked for before they are needed

  // What `faked` makes of words that have two elements each.
  template <class Faked>
  static HWY_INLINE int64_t each(const BFloat16* x, BFloat16* y, int64_t count, const Faked& faked) {
    const HalfWords halves;
    int64_t i = 0;
    for (; i + 2 * width() <= count; i += 2 * width()) {
      const auto pairs = hn::BitCast(Words(), hn::LoadU(halves, reinterpret_cast<const uint16_t*>(x + i)));
      hwy::Prefetch(x + i + kAhead);
      hn::StoreU(hn::BitCast(halves, faked(pairs)), halves, reinterpret_cast<uint16_t*>(y + i));
    }
    return i;
  }

  // The first in the lower half of the lanes, the second in the upper.
  static HWY_INLINE Lanes of_two(const float* factors) {
    return hn::ConcatLowerLower(Floats(), fill(factors[1]), fill(factors[0]));
  }

  // Powers of two move the steps instead of the elements. None is beyond the largest: the power is found so.
  HWY_INLINE void fake_scaled(const BFloat16* x, BFloat16* y, int64_t count, Lanes power) const {
    if (integer) {
      const Lanes moved = hn::Mul(high, power);
      each(x, y, count, [&](auto pairs) HWY_ATTR {
        return integers<true>(pairs, [&](Lanes value) HWY_ATTR { return nearest_step(value, moved); });
      });
    } else {
      const auto least = hn::BitCast(Words(), hn::Mul(hn::BitCast(Floats(), steps.least), power));
      each(x, y, count, [&](auto pairs) HWY_ATTR {
        return floats<true>(pairs, [&](Lanes value) HWY_ATTR { return steps.nearest(value, least); });
      });
    }
  }

  // The words of what is in even and in odd places. `kExact`: these are bfloat16; otherwise they are rounded
  // to nearest even, and the payload of a NaN must be in its upper half, as it is in widened bfloat16.
  template <bool kExact>
  static HWY_INLINE Pair joined(Lanes even, Lanes odd) {
    const Words words;
    const HalfWords halves;
    const auto low = hn::BitCast(words, even), high = hn::BitCast(words, odd);
    if constexpr (kExact) return hn::Or(hn::ShiftRight<16>(low), high);
    const auto upper = hn::OddEven(hn::BitCast(halves, high), hn::BitCast(halves, hn::ShiftRight<16>(low))),
               lower = hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(high)), hn::BitCast(halves, low));
    // The upper bit of the mean is the carry of the sum: of what is cut off, 0x7FFF and the last bit that
    // stays.
    const auto limit = hn::OrAnd(hn::Set(halves, 0x7FFE), upper, hn::Set(halves, 1));
    return hn::BitCast(words, hn::Add(upper, hn::ShiftRight<15>(hn::AverageRound(lower, limit))));
  }

  template <bool kExact, class Faked>
  static HWY_INLINE Pair integers(Pair pairs, const Faked& faked) {
    return joined<kExact>(faked(hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs))),
                          faked(hn::BitCast(Floats(), hn::And(pairs, hn::Set(Words(), 0xFFFF0000)))));
  }

  // Magnitudes are rounded.
  template <bool kExact, class Faked>
  static HWY_INLINE Pair floats(Pair pairs, const Faked& faked) {
    const Words words;
    const auto even = hn::ShiftLeft<16>(hn::And(pairs, hn::Set(words, 0x7FFF))),
               odd = hn::And(pairs, hn::Set(words, 0x7FFF0000));
    return hn::OrAnd(joined<kExact>(faked(hn::BitCast(Floats(), even)), faked(hn::BitCast(Floats(), odd))),
                     pairs, hn::Set(words, 0x80008000));
  }

  Steps steps;
  Lanes lowest, largest, high;
  bool integer;
};
#endif

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
