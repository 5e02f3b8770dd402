#include <array>
#include <bit>

#include "backends/floats.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"
#include "ops/fake_quantize/fake_quantize.h"
#include "quant/groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/fake_quantize.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"
#include "backends/simd/fake_levels-inl.h"
#include "backends/simd/fake_pairs-inl.h"
#include "backends/simd/fake_ranges-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;
using quant::Scaling;

// quant::round_to, of many.
struct Rounding {
  explicit Rounding(const quant::Element& element)
      : steps(element),
        lowest(fill(element.lowest)),
        largest(fill(element.largest)),
        integer(element.integer) {}

  HWY_INLINE Lanes operator()(Lanes x) const {
    const Lanes clipped = at_least(lowest, at_most(largest, x));
    const Lanes rounded = hn::CopySign(steps(hn::Abs(clipped)), clipped);
    return integer ? hn::Add(rounded, none()) : rounded;
  }

  Steps steps;
  Lanes lowest, largest;
  bool integer;
};

// quant::quantized and dequantized; in kPowersOfTwo `by` is the reciprocal, which is exact, too.
template <Scaling kScaling>
HWY_INLINE Lanes faked(const Rounding& round, Lanes x, Lanes by, Lanes back) {
  if constexpr (kScaling == Scaling::kIntegers) return hn::Div(round(hn::Mul(x, by)), back);
  if constexpr (kScaling == Scaling::kFloats) return hn::Mul(round(hn::Mul(x, by)), back);
  if constexpr (kScaling == Scaling::kScales) return hn::Mul(round(hn::Div(x, by)), back);
  if constexpr (kScaling == Scaling::kTwoLevels) return hn::Mul(round(hn::Add(hn::Div(x, by), none())), back);
  return hn::Mul(round(hn::Mul(x, by)), back);
}

template <Scaling kScaling, class T>
HWY_INLINE void fake_run(const Rounding& round, const T* x, T* y, int64_t count,
                         const quant::Factors& factors) {
  const Lanes by = fill(factors.by), back = fill(factors.back);
  sweep(count, [&](int64_t i, auto lanes)
                   HWY_ATTR { store(faked<kScaling>(round, load(x + i, lanes), by, back), y + i, lanes); });
}

// quant::block_scale times the global one, of `width` blocks from `i` on.
HWY_INLINE auto two_levels(Lanes amax, float whole, BlockFactors& factors, int64_t i) {
  const float global = quant::global_scale(whole);
  const Rounding round(quant::kE4M3);
  const Lanes scale = hn::Div(amax, fill(6 * global));
  const auto is_one = hn::Eq(scale, none());
  const Lanes rounded = round(hn::Max(fill(0x1p-9f), scale));
  const Lanes chosen = global > 0 ? hn::IfThenElse(is_one, fill(1), rounded) : fill(1);
  const Lanes product = hn::Mul(chosen, fill(global));
  const Lanes by = hn::IfThenElse(hn::Gt(product, none()), product, fill(1));
  hn::StoreU(by, Floats(), factors.by + i);
  hn::StoreU(product, Floats(), factors.back + i);
  hn::StoreU(chosen, Floats(), factors.scale + i);
  // No quotient becomes 0.
  return hn::And(hn::Ge(product, fill(kSmall)), hn::Le(product, fill(0x1p16f)));
}

// 2^(code - 127).
HWY_INLINE Lanes power_of(hn::Vec<Words> code) {
  const Words words;
  const auto is_least = hn::Eq(code, hn::Zero(words));
  return hn::BitCast(Floats(), hn::IfThenElse(is_least, hn::Set(words, 0x400000), hn::ShiftLeft<23>(code)));
}

// The power of quant::power_code, of `width` blocks from `i` on.
HWY_INLINE auto powers(Lanes amax, float largest, BlockFactors& factors, int64_t i) {
  const Words words;
  const auto bits = hn::BitCast(words, hn::Div(amax, fill(largest)));
  const auto one = hn::Set(words, 1), zero = hn::Zero(words);
  const auto exponent = hn::ShiftRight<23>(bits), rest = hn::And(bits, hn::Set(words, 0x7FFFFF));
  const auto limit = hn::IfThenElse(hn::Eq(exponent, zero), hn::Set(words, 0x400000), zero);
  const auto up = hn::IfThenElseZero(hn::Gt(rest, limit), one);
  const auto code = hn::Min(hn::Add(exponent, up), hn::Set(words, 254));
  const Lanes back = power_of(code);
  hn::StoreU(power_of(hn::Sub(hn::Set(words, 254), code)), Floats(), factors.by + i);
  hn::StoreU(back, Floats(), factors.back + i);
  hn::StoreU(fill(1), Floats(), factors.scale + i);
  return hn::And(hn::Ge(back, fill(kSmall)), hn::Le(back, fill(kLarge)));
}

// The largest bits of magnitudes of a block, in whose order NaN comes last: lane by lane.
template <class T>
HWY_INLINE hn::Vec<Words> lane_maxima(const T* x, int64_t size) {
  const Words words;
  auto largest = hn::Zero(words);
  sweep(size, [&](int64_t i, auto lanes)
                  HWY_ATTR { largest = hn::Max(largest, hn::BitCast(words, hn::Abs(load(x + i, lanes)))); });
  return largest;
}

#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
// Of 2^kLevels blocks: each has as many neighbouring lanes as another, in the order of the blocks.
template <int kLevels, int64_t kSize>
HWY_INLINE hn::Vec<Words> maxima_of_blocks(const float* x) {
  if constexpr (kLevels == 0) {
    return lane_maxima(x, kSize);
  } else {
    const Words words;
    const auto low = maxima_of_blocks<kLevels - 1, kSize>(x),
               high = maxima_of_blocks<kLevels - 1, kSize>(x + (int64_t{1} << (kLevels - 1)) * kSize);
    return hn::Max(hn::ConcatEven(words, high, low), hn::ConcatOdd(words, high, low));
  }
}

// The same of bfloat16, whose bits are the upper halves of float32's and are compared as they are: of 8 runs
// of whole vectors, each a block or two. Every 128 bits have a word of each run.
using HalfWords = hn::Repartition<uint16_t, Words>;
constexpr int64_t kHalfWords = hn::MaxLanes(HalfWords());
template <int kLevel, int64_t kRun>
HWY_INLINE hn::Vec<HalfWords> maxima_of_runs(const uint16_t* x) {
  const HalfWords halves;
  if constexpr (kLevel == 0) {
    auto largest = hn::Zero(halves);
    for (int64_t i = 0; i < kRun; i += kHalfWords)
      largest = hn::Max(largest, hn::And(hn::LoadU(halves, x + i), hn::Set(halves, 0x7FFF)));
    return largest;
  } else {
    const auto even = maxima_of_runs<kLevel - 1, kRun>(x),
               odd = maxima_of_runs<kLevel - 1, kRun>(x + (8 >> kLevel) * kRun);
    return hn::Max(hn::InterleaveLower(halves, even, odd), hn::InterleaveUpper(halves, even, odd));
  }
}

// Of whole multiples of some blocks; returns of how many.
template <int64_t kSize>
HWY_INLINE int64_t amax_of_blocks(const float* x, int64_t blocks, float* amax) {
  constexpr int kLevels = std::countr_zero(hn::MaxLanes(Floats()));
  int64_t block = 0;
  for (; block + width() <= blocks; block += width(), x += width() * kSize)
    hn::StoreU(hn::BitCast(Floats(), maxima_of_blocks<kLevels, kSize>(x)), Floats(), amax + block);
  return block;
}
template <int64_t kSize>
HWY_INLINE int64_t amax_of_blocks(const BFloat16* x, int64_t blocks, float* amax) {
  const HalfWords halves;
  const hn::CappedTag<uint16_t, 8> eight;
  // Whether runs are of two blocks, and of how many vectors the first 8 words make one of float32.
  constexpr bool kTwo = 2 * kSize == kHalfWords;
  constexpr int64_t kVectors = kHalfWords == 32 && !kTwo ? 2 : 1, kRun = std::max(kSize, kHalfWords),
                    kStep = 8 * kVectors * kRun / kSize;
  int64_t block = 0;
  for (; block + kStep <= blocks; block += kStep) {
    HWY_ALIGN uint16_t maxima[kVectors * kHalfWords];
    for (int64_t i = 0; i < kVectors; ++i, x += 8 * kRun) {
      auto largest = maxima_of_runs<3, kRun>(reinterpret_cast<const uint16_t*>(x));
      if constexpr (kHalfWords >= 16) largest = hn::Max(largest, hn::SwapAdjacentBlocks(largest));
      if constexpr (kVectors == 2) largest = hn::Max(largest, hn::ConcatLowerUpper(halves, largest, largest));
      hn::StoreU(largest, halves, maxima + i * kHalfWords);
    }
    if constexpr (kHalfWords == 32) {
      auto low = hn::LoadU(eight, maxima), high = hn::LoadU(eight, maxima + (kTwo ? 16 : 32));
      if constexpr (kTwo) {
        const auto even = low, odd = high;
        low = hn::InterleaveLower(eight, even, odd);
        high = hn::InterleaveUpper(eight, even, odd);
      }
      hn::StoreU(widen(hn::Combine(Halves(), high, low)), Floats(), amax + block);
    } else {
      for (int64_t i = 0; i < kStep; i += width())
        hn::StoreU(widen(hn::LoadU(Halves(), maxima + i)), Floats(), amax + block + i);
    }
  }
  return block;
}
#endif

// The largest magnitudes of blocks, infinity or NaN where one is not finite.
template <class T>
void block_amax(const T* x, int64_t blocks, int64_t size, float* amax) {
  int64_t block = 0;
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  if (size == 16) block = amax_of_blocks<16>(x, blocks, amax);
  if (size == 32) block = amax_of_blocks<32>(x, blocks, amax);
#endif
  for (x += block * size; block < blocks; ++block, x += size)
    amax[block] = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(Words(), lane_maxima(x, size))));
}

// Of at most kBlocks blocks, of which amax has a multiple of `width` values.
template <Scaling kScaling>
void set_factors(const quant::Format& format, const float* amax, int64_t blocks, float whole,
                 BlockFactors& factors) {
  const bool whole_is_finite = kScaling != Scaling::kTwoLevels || whole < HUGE_VALF;
  const Lanes limit = fill(whole_is_finite ? HUGE_VALF : 0), nan = fill(NAN);
  factors.moderate = true;
  for (int64_t i = 0; i < blocks; i += width()) {
    const Lanes own = hn::LoadU(Floats(), amax + i);
    const auto finite = hn::Lt(own, limit);
    const auto moderate = kScaling == Scaling::kTwoLevels ? two_levels(own, whole, factors, i)
                                                          : powers(own, format.element.largest, factors, i);
    hn::StoreU(hn::IfThenElse(finite, hn::LoadU(Floats(), factors.by + i), nan), Floats(), factors.by + i);
    const auto exists = hn::FirstN(Floats(), static_cast<size_t>(blocks - i));
    factors.moderate &= hn::AllTrue(Floats(), hn::Or(hn::And(moderate, finite), hn::Not(exists)));
  }
}

// What fakes elements: the first for all of them, the others where they can.
template <Scaling kScaling, class T>
struct Fakers {
  explicit Fakers(const quant::Element& element) : round(element), pairs(element) {
    if (kScaling == Scaling::kPowersOfTwo) levels.take(1);
  }
  Rounding round;
  Pairs<kScaling, T> pairs;
  Levels<kScaling, T> levels;
};

template <Scaling kScaling, class T>
void fake_blocks(const quant::Format& format, const Fakers<kScaling, T>& fakers, const T* x, T* y,
                 int64_t count, float whole) {
  const int64_t size = format.block;
  HWY_ALIGN std::array<float, kBlocks> amax{};
  BlockFactors factors;
  for (int64_t first = 0; first < count; first += kBlocks * size) {
    const int64_t blocks = std::min(kBlocks, (count - first) / size);
    block_amax(x + first, blocks, size, amax.data());
    set_factors<kScaling>(format, amax.data(), blocks, whole, factors);
    const int64_t done = format.element == quant::kE2M1
                             ? fakers.levels.fake_blocks(x + first, y + first, blocks, size, factors)
                             : fakers.pairs.fake_blocks(x + first, y + first, blocks, size, factors);
    for (int64_t block = done / size; block < blocks; ++block)
      fake_run<kScaling>(fakers.round, x + first + block * size, y + first + block * size, size,
                         {factors.by[block], factors.back[block]});
  }
}

template <Scaling kScaling, class T>
void fake_rows(const ops::FakeQuantize& op, const Tensor& y, const quant::Groups& groups, int64_t begin,
               int64_t end) {
  Fakers<kScaling, T> fakers(op.format.element);
  const float* const amax = op.amax.defined() ? op.amax.data<float>() : nullptr;
  const int64_t columns = groups.columns, run = groups.width(), rows = groups.rows / groups.row_groups;
  RowCursor cursor(op.x, begin);
  T* out = y.data<T>() + begin * columns;
  float whole = 0;
  for (int64_t row = begin; row < end; ++row, out += columns, cursor.next()) {
    const T* x = op.x.data<T>() + cursor.offset();
    if constexpr (kScaling == Scaling::kTwoLevels || kScaling == Scaling::kPowersOfTwo) {
      if (kScaling == Scaling::kTwoLevels && (row == begin || row % rows == 0)) {
        whole = amax[groups.first(row)];
        fakers.levels.take(quant::global_scale(whole));
      }
      fake_blocks<kScaling>(op.format, fakers, x, out, columns, whole);
    } else {
      const float* own = amax + groups.first(row);
      for (int64_t first = 0; first < columns; first += run, ++own) {
        const quant::Factors factors = factors_of(op.format, *own);
        const int64_t done = first + fakers.pairs.fake_run(x + first, out + first, run, factors);
        fake_run<kScaling>(fakers.round, x + done, out + done, first + run - done, factors);
      }
    }
  }
}

void forward(const ops::FakeQuantize& op, const Tensor& y, const quant::Groups& groups, int64_t begin,
             int64_t end) {
  visit_wide(op.x.dtype(), [&]<class T>() {
    switch (op.format.scaling) {
      case Scaling::kIntegers:
        return fake_rows<Scaling::kIntegers, T>(op, y, groups, begin, end);
      case Scaling::kFloats:
        return fake_rows<Scaling::kFloats, T>(op, y, groups, begin, end);
      case Scaling::kScales:
        return fake_rows<Scaling::kScales, T>(op, y, groups, begin, end);
      case Scaling::kTwoLevels:
        return fake_rows<Scaling::kTwoLevels, T>(op, y, groups, begin, end);
      case Scaling::kPowersOfTwo:
        return fake_rows<Scaling::kPowersOfTwo, T>(op, y, groups, begin, end);
      case Scaling::kZeroPoints:
        return fake_ranges<T>(op, y, groups, begin, end);
    }
  });
}

// Of x in T; weights have gradients of another dtype. kBoth: ranges have lower ends.
template <class T, class Grad, bool kBoth>
void clip_rows(const ops::FakeQuantize& op, const Tensor& grads, const quant::Groups& groups, int64_t begin,
               int64_t end) {
  const int64_t columns = groups.columns, run = groups.width();
  RowCursor values(op.x, begin);
  Grad* grad = grads.data<Grad>() + begin * columns;
  for (int64_t row = begin; row < end; ++row, grad += columns, values.next()) {
    const T* x = op.x.data<T>() + values.offset();
    for (int64_t first = 0, group = groups.first(row); first < columns; first += run, ++group) {
      const Lanes most = fill(op.amax.data<float>()[group]),
                  least = kBoth ? fill(op.low.data<float>()[group]) : none();
      sweep(run, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes value = load(x + first + i, lanes);
        const auto kept =
            kBoth ? hn::And(hn::Le(value, most), hn::Ge(value, least)) : hn::Le(hn::Abs(value), most);
        Grad* const at = grad + first + i;
        if (!hn::AllTrue(Floats(), kept)) store(hn::IfThenElseZero(kept, load(at, lanes)), at, lanes);
      });
    }
  }
}

void backward(const ops::FakeQuantize& op, const Tensor& grads, const quant::Groups& groups, int64_t begin,
              int64_t end) {
  visit_wide(op.x.dtype(), [&]<class T>() {
    visit_wide(grads.dtype(), [&]<class Grad>() {
      const auto clip = op.low.defined() ? clip_rows<T, Grad, true> : clip_rows<T, Grad, false>;
      clip(op, grads, groups, begin, end);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::FakeQuantize;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

quant::Groups groups_of(const FakeQuantize& op) {
  Shape one = op.x.shape();
  for (int d = 0; d < one.ndim(); ++d) one[d] = 1;
  return quant::groups_of(FakeQuantize::kName, op.x.shape(), op.amax.defined() ? op.amax.shape() : one);
}

Tensor run_forward(const FakeQuantize& op) {
  const quant::Groups groups = groups_of(op);
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype());
  parallel_ranges(groups.experts * groups.rows, rows_per_task(groups.columns),
                  [&](int64_t begin, int64_t end) {
                    HWY_DYNAMIC_DISPATCH(forward)(op, y, groups, begin, end);
                  });
  return y;
}

void run_backward(const FakeQuantize& op, const Tensor& grads) {
  const quant::Groups groups = groups_of(op);
  parallel_ranges(groups.experts * groups.rows, rows_per_task(groups.columns),
                  [&](int64_t begin, int64_t end) {
                    HWY_DYNAMIC_DISPATCH(backward)(op, grads, groups, begin, end);
                  });
}

}  // namespace

void register_simd_fake_quantize() {
  ops::kernels<FakeQuantize>().add(
      "simd", {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
