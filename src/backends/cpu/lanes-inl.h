// Vectors of float32 over float32 or bfloat16 memory. Compiled once per target by Highway's foreach_target,
// so the guard toggles and the file is included by .cpp files only, after foreach_target.h.
#if defined(TEMPER_BACKENDS_CPU_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BACKENDS_CPU_LANES_INL_H
#undef TEMPER_BACKENDS_CPU_LANES_INL_H
#else
#define TEMPER_BACKENDS_CPU_LANES_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Lanes = hn::Vec<Floats>;
using Halves = hn::Rebind<uint16_t, Floats>;
using Words = hn::RebindToUnsigned<Floats>;

// How many lanes a load or store touches: all, or the first `count` (the others read as 0).
struct FullVector {};
struct PartialVector {
  int64_t count;
};

HWY_INLINE int64_t width() { return static_cast<int64_t>(hn::Lanes(Floats())); }

// Calls body(i, FullVector) for the full vectors of [0, count), then body(i, PartialVector) for the rest.
template <class Body>
HWY_INLINE void sweep(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + width() <= count; i += width()) body(i, FullVector());
  if (i < count) body(i, PartialVector{count - i});
}

HWY_INLINE Lanes widen(hn::Vec<Halves> bits) {
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), bits)));
}

// The upper halves of the words after `more`, half a word, was added to them; NaN stays NaN.
HWY_INLINE hn::Vec<Halves> narrow(Lanes value, hn::Vec<Words> more) {
  const Words words;
  const auto bits = hn::BitCast(words, value);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, more));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(words, 0x40));
  const auto chosen = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), quiet, rounded);
  return hn::DemoteTo(Halves(), hn::BitCast(hn::RebindToSigned<Words>(), chosen));
}

// Rounds to nearest even.
HWY_INLINE hn::Vec<Halves> narrow(Lanes value) {
  const Words words;
  const auto odd = hn::And(hn::ShiftRight<16>(hn::BitCast(words, value)), hn::Set(words, 1));
  return narrow(value, hn::Add(odd, hn::Set(words, 0x7FFF)));
}

HWY_INLINE Lanes load(const float* from, FullVector) { return hn::LoadU(Floats(), from); }
HWY_INLINE Lanes load(const BFloat16* from, FullVector) {
  return widen(hn::LoadU(Halves(), reinterpret_cast<const uint16_t*>(from)));
}
// Finite codes of E4M3 as float16 has them: seven bits further up they are the same number times 2⁻⁸.
inline constexpr float kOfCodes = 0x1p8f;
HWY_INLINE Lanes load(const Float8E4M3* from, FullVector) {
  const Halves halves;
  const auto codes = hn::LoadU(hn::Rebind<uint8_t, Floats>(), reinterpret_cast<const uint8_t*>(from));
  const auto high = hn::ShiftLeft<8>(hn::PromoteTo(halves, codes));
  const auto bits =
      hn::OrAnd(hn::And(high, hn::Set(halves, 0x8000)), hn::ShiftRight<1>(high), hn::Set(halves, 0x3F80));
  return hn::PromoteTo(Floats(), hn::BitCast(hn::Rebind<hwy::float16_t, Floats>(), bits));
}
template <class T>
HWY_INLINE Lanes load(const T* from, PartialVector part) {
  HWY_ALIGN T lanes[hn::MaxLanes(Floats())] = {};
  std::memcpy(lanes, from, static_cast<size_t>(part.count) * sizeof(T));
  return load(lanes, FullVector());
}

HWY_INLINE void store(Lanes value, float* to, FullVector) { hn::StoreU(value, Floats(), to); }
HWY_INLINE void store(hn::Vec<Halves> bits, BFloat16* to, FullVector) {
  hn::StoreU(bits, Halves(), reinterpret_cast<uint16_t*>(to));
}
HWY_INLINE void store(Lanes value, BFloat16* to, FullVector) { store(narrow(value), to, FullVector()); }
template <class V, class T>
HWY_INLINE void store(V value, T* to, PartialVector part) {
  HWY_ALIGN T lanes[hn::MaxLanes(Floats())];
  store(value, lanes, FullVector());
  std::memcpy(to, lanes, static_cast<size_t>(part.count) * sizeof(T));
}

// The lanes that a PartialVector has; the others become 0.
HWY_INLINE Lanes only(Lanes value, FullVector) { return value; }
HWY_INLINE Lanes only(Lanes value, PartialVector part) {
  return hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<size_t>(part.count)), value);
}

HWY_INLINE Lanes fill(float value) { return hn::Set(Floats(), value); }
HWY_INLINE Lanes none() { return hn::Zero(Floats()); }

// x, cut off at a limit; NaN of x stays NaN. Of NaN the vector instructions of x86 give the second argument;
// Highway's portable targets, and instructions of other processors, may give the limit.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_INLINE Lanes at_most(Lanes limit, Lanes x) { return hn::Min(limit, x); }
HWY_INLINE Lanes at_least(Lanes limit, Lanes x) { return hn::Max(limit, x); }
#else
HWY_INLINE Lanes at_most(Lanes limit, Lanes x) { return hn::IfThenElse(hn::Lt(limit, x), limit, x); }
HWY_INLINE Lanes at_least(Lanes limit, Lanes x) { return hn::IfThenElse(hn::Lt(x, limit), limit, x); }
#endif

HWY_INLINE float total(Lanes value) { return hn::GetLane(hn::SumOfLanes(Floats(), value)); }

// e^x within two units of the last place for x up to 88; 0 below -87, NaN of NaN. x = n log 2 + r with |r| at
// most half of log 2, whose power is its Taylor series up to r⁷/7!.
HWY_INLINE Lanes exponential(Lanes x) {
  const hn::RebindToSigned<Floats> integers;
  const Lanes n = hn::Round(hn::Mul(hn::Min(hn::Max(x, fill(-87.0f)), fill(88.0f)), fill(1.44269504f)));
  // log 2 in two parts, the first short enough that n times it is exact.
  const Lanes r = hn::NegMulAdd(n, fill(-2.12194440e-4f), hn::NegMulAdd(n, fill(0.693359375f), x));
  Lanes sum = fill(1.0f / 5040);
  for (const float factorial : {720.0f, 120.0f, 24.0f, 6.0f, 2.0f, 1.0f, 1.0f})
    sum = hn::MulAdd(sum, r, fill(1 / factorial));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(integers, n), hn::Set(integers, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, fill(-87.0f)), hn::Mul(sum, hn::BitCast(Floats(), exponent)));
}

// 1 / (1 + e^-x); the limit keeps the power in range.
HWY_INLINE Lanes logistic(Lanes x) {
  const Lanes power = exponential(at_most(fill(88.0f), hn::Neg(x)));
  return hn::Div(fill(1), hn::Add(fill(1), power));
}

// Asks for rows that will be needed soon: the processor foresees a long row, but not short rows far apart.
template <class T>
HWY_INLINE void fetch_ahead(const T* rows, int64_t count, int64_t size, int64_t stride) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t row = 0; row < count; ++row, rows += stride)
    for (int64_t i = 0; i < size; i += kLine) hwy::Prefetch(rows + i);
}

// to[i] = from[i] for count elements, converting between float32 and bfloat16.
template <class From, class To>
HWY_INLINE void convert(const From* from, To* to, int64_t count) {
  sweep(count, [&](int64_t i, auto lanes) HWY_ATTR { store(load(from + i, lanes), to + i, lanes); });
}

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
