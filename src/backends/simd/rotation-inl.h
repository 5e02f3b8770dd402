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

// One token's row of the tables, which have as many columns as a head has pairs.
struct Angles {
  const float *cos, *sin;
  int64_t half;

  template <class Op>
  Angles(const Op& op, int64_t token) : half(op.cos.dim(1)) {
    const int64_t position = op.positions.template data<int32_t>()[token];
    cos = op.cos.template data<float>() + position * half;
    sin = op.sin.template data<float>() + position * half;
  }
};

struct Pair {
  Lanes low, high;
};

// Where the two elements of a pair are. at() points to element 0 of pair i.
struct HalfSplit {
  template <class T>
  static T* at(T* head, int64_t i) {
    return head + i;
  }
  template <class T, class Count>
  static HWY_INLINE Pair load(const T* x, int64_t half, Count lanes) {
    return {HWY_NAMESPACE::load(x, lanes), HWY_NAMESPACE::load(x + half, lanes)};
  }
  template <class T, class Count>
  static HWY_INLINE void store(const Pair& pair, T* y, int64_t half, Count lanes) {
    HWY_NAMESPACE::store(pair.low, y, lanes);
    HWY_NAMESPACE::store(pair.high, y + half, lanes);
  }
};
struct Interleaved {
  static constexpr int64_t kMost = 2 * hn::MaxLanes(Floats());
  template <class T>
  static T* at(T* head, int64_t i) {
    return head + 2 * i;
  }
  static HWY_INLINE Pair load(const float* x, int64_t, FullVector) {
    Pair pair;
    hn::LoadInterleaved2(Floats(), x, pair.low, pair.high);
    return pair;
  }
  static HWY_INLINE Pair load(const BFloat16* x, int64_t, FullVector) {
    hn::Vec<Halves> low, high;
    hn::LoadInterleaved2(Halves(), reinterpret_cast<const uint16_t*>(x), low, high);
    return {widen(low), widen(high)};
  }
  template <class T>
  static HWY_INLINE Pair load(const T* x, int64_t half, PartialVector part) {
    HWY_ALIGN T lanes[kMost] = {};
    std::memcpy(lanes, x, 2 * static_cast<size_t>(part.count) * sizeof(T));
    return load(lanes, half, FullVector());
  }
  static HWY_INLINE void store(const Pair& pair, float* y, int64_t, FullVector) {
    hn::StoreInterleaved2(pair.low, pair.high, Floats(), y);
  }
  static HWY_INLINE void store(const Pair& pair, BFloat16* y, int64_t, FullVector) {
    hn::StoreInterleaved2(narrow(pair.low), narrow(pair.high), Halves(), reinterpret_cast<uint16_t*>(y));
  }
  template <class T>
  static HWY_INLINE void store(const Pair& pair, T* y, int64_t half, PartialVector part) {
    HWY_ALIGN T lanes[kMost];
    store(pair, lanes, half, FullVector());
    std::memcpy(y, lanes, 2 * static_cast<size_t>(part.count) * sizeof(T));
  }
};

HWY_INLINE Pair rotate(const Pair& x, Lanes cos, Lanes sin) {
  return {hn::NegMulAdd(x.high, sin, hn::Mul(x.low, cos)), hn::MulAdd(x.low, sin, hn::Mul(x.high, cos))};
}

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
