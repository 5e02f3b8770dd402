// Rotation of pairs by angles. Included like lanes-inl.h, after it.
#if defined(TEMPER_BACKENDS_SIMD_ROTATION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BACKENDS_SIMD_ROTATION_INL_H
#undef TEMPER_BACKENDS_SIMD_ROTATION_INL_H
#else
#define TEMPER_BACKENDS_SIMD_ROTATION_INL_H
#endif

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::HWY_NAMESPACE {

struct Pair {
  Lanes low, high;
};

// In halves: x[i] and x[i + half].
template <class T, class Count>
HWY_INLINE Pair load_pair(const T* x, int64_t half, Count lanes) {
  return {load(x, lanes), load(x + half, lanes)};
}

template <class T, class Count>
HWY_INLINE void store_pair(const Pair& pair, T* y, int64_t half, Count lanes) {
  store(pair.low, y, lanes);
  store(pair.high, y + half, lanes);
}

// Next to each other: x[2i] and x[2i + 1].
HWY_INLINE Pair load_neighbours(const float* x, Whole) {
  Pair pair;
  hn::LoadInterleaved2(Floats(), x, pair.low, pair.high);
  return pair;
}
HWY_INLINE Pair load_neighbours(const BFloat16* x, Whole) {
  hn::Vec<Halves> low, high;
  hn::LoadInterleaved2(Halves(), reinterpret_cast<const uint16_t*>(x), low, high);
  return {widen(low), widen(high)};
}
template <class T>
HWY_INLINE Pair load_neighbours(const T* x, Part part) {
  HWY_ALIGN T lanes[2 * hn::MaxLanes(Floats())] = {};
  std::memcpy(lanes, x, 2 * static_cast<size_t>(part.count) * sizeof(T));
  return load_neighbours(lanes, Whole());
}

HWY_INLINE void store_neighbours(const Pair& pair, float* y, Whole) {
  hn::StoreInterleaved2(pair.low, pair.high, Floats(), y);
}
HWY_INLINE void store_neighbours(const Pair& pair, BFloat16* y, Whole) {
  hn::StoreInterleaved2(narrow(pair.low), narrow(pair.high), Halves(), reinterpret_cast<uint16_t*>(y));
}
template <class T>
HWY_INLINE void store_neighbours(const Pair& pair, T* y, Part part) {
  HWY_ALIGN T lanes[2 * hn::MaxLanes(Floats())];
  store_neighbours(pair, lanes, Whole());
  std::memcpy(y, lanes, 2 * static_cast<size_t>(part.count) * sizeof(T));
}

HWY_INLINE Pair rotate(const Pair& x, Lanes cos, Lanes sin) {
  return {hn::NegMulAdd(x.high, sin, hn::Mul(x.low, cos)), hn::MulAdd(x.low, sin, hn::Mul(x.high, cos))};
}

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
