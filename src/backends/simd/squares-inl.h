// Sums of squares of rows, for norms. Included like lanes-inl.h, after it.
#if defined(TEMPER_BACKENDS_SIMD_SQUARES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BACKENDS_SIMD_SQUARES_INL_H
#undef TEMPER_BACKENDS_SIMD_SQUARES_INL_H
#else
#define TEMPER_BACKENDS_SIMD_SQUARES_INL_H
#endif

#include <cmath>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::HWY_NAMESPACE {

template <class T>
HWY_INLINE float square_sum(const T* x, int64_t size) {
  Lanes squares = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes value = load(x + i, lanes);
    squares = hn::MulAdd(value, value, squares);
  });
  return total(squares);
}

HWY_INLINE float inverse_rms(float squares, int64_t size, float eps) {
  return 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
}

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
