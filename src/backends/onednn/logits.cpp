#include "backends/onednn/logits.h"

#include "backends/floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/logits.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

Softmax measure_row(const float* row, int64_t size) {
  float largest = row[0];
  int64_t i = 0;
  if (size >= width()) {
    Lanes most = hn::LoadU(Floats(), row);
    for (; i + width() <= size; i += width()) most = hn::Max(most, hn::LoadU(Floats(), row + i));
    largest = hn::GetLane(hn::MaxOfLanes(Floats(), most));
  }
  for (; i < size; ++i) largest = row[i] > largest ? row[i] : largest;
  Lanes sums = none();
  sweep(size, [&](int64_t at, auto lanes) HWY_ATTR {
    const Lanes power = exponential(hn::Sub(load(row + at, lanes), fill(largest)));
    sums = hn::Add(sums, only(power, lanes));
  });
  return {largest, total(sums)};
}

void measure(const float* logits, int64_t rows, int64_t size, int64_t stride, Softmax* out) {
  for (int64_t row = 0; row < rows; ++row) out[row] = measure_row(logits + row * stride, size);
}

void exponentiate(const Block& logits, const Block& to, int64_t rows, int64_t size, const float* lse,
                  const float* factors) {
  visit_wide(to.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = static_cast<const float*>(logits.data) + row * logits.stride;
      T* out = static_cast<T*>(to.data) + row * to.stride;
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes power = exponential(hn::Sub(load(from + i, lanes), fill(lse[row])));
        store(hn::Mul(power, fill(factors[row])), out + i, lanes);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {
HWY_EXPORT(measure);
HWY_EXPORT(exponentiate);
}  // namespace

void measure_rows(const float* logits, int64_t rows, int64_t size, int64_t stride, Softmax* rows_out) {
  HWY_DYNAMIC_DISPATCH(measure)(logits, rows, size, stride, rows_out);
}

void exponentiate_rows(const Block& logits, const Block& to, int64_t rows, int64_t size, const float* lse,
                       const float* factors) {
  HWY_DYNAMIC_DISPATCH(exponentiate)(logits, to, rows, size, lse, factors);
}

}  // namespace temper::backends
#endif  // HWY_ONCE
