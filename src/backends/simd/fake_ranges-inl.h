// Fake quantization to integers with zero points. Included like lanes-inl.h, after fake_pairs-inl.h.
#if defined(TEMPER_BACKENDS_SIMD_FAKE_RANGES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BACKENDS_SIMD_FAKE_RANGES_INL_H
#undef TEMPER_BACKENDS_SIMD_FAKE_RANGES_INL_H
#else
#define TEMPER_BACKENDS_SIMD_FAKE_RANGES_INL_H
#endif

#include "backends/cpu/lanes-inl.h"
#include "backends/simd/fake_pairs-inl.h"
#include "backends/simd/rows.h"
#include "ops/fake_quantize/fake_quantize.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::HWY_NAMESPACE {

// Of quant::Multiples; lanes that are whole numbers have one zero.
struct WholeMultiples {
  explicit WholeMultiples(const quant::Multiples& multiples)
      : least(fill(multiples.least)), most(fill(multiples.most)) {}
  HWY_INLINE Lanes operator()(Lanes x) const {
    return nearest_step(at_least(least, at_most(most, x)), fill(0x1.8p23f));
  }
  Lanes least, most;
};

// quant::integer_of and value_of, of rows.
template <class T>
void fake_ranges(const ops::FakeQuantize& op, const Tensor& y, const quant::Groups& groups, int64_t begin,
                 int64_t end) {
  const quant::Element& element = op.format.element;
  const Pairs<quant::Scaling::kZeroPoints, T> pairs(element);
  const float *const lows = op.low.data<float>(), *const highs = op.amax.data<float>();
  const int64_t columns = groups.columns, run = groups.width();
  RowCursor cursor(op.x, begin);
  T* out = y.data<T>() + begin * columns;
  for (int64_t row = begin; row < end; ++row, out += columns, cursor.next()) {
    const T* x = op.x.data<T>() + cursor.offset();
    for (int64_t first = 0, group = groups.first(row); first < columns; first += run, ++group) {
      const quant::ZeroPoint at = quant::zero_point_of(element, lows[group], highs[group]);
      const quant::Multiples multiples = quant::multiples_of(element, at);
      const int64_t done = pairs.fake_range(x + first, out + first, run, at.step, multiples);
      const WholeMultiples whole(multiples);
      const Lanes step = fill(at.step);
      sweep(run - done, [&](int64_t i, auto lanes) HWY_ATTR {
        const int64_t place = first + done + i;
        store(hn::Mul(whole(hn::Div(load(x + place, lanes), step)), step), out + place, lanes);
      });
    }
  }
}

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
