#include "backends/onednn/tiles/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/tiles/scores.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// The columns that a row sees.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
Range seen_by(const Scores& scores, int64_t row) {
  const int64_t last = scores.seen + row / scores.group;
  const int64_t end = std::clamp<int64_t>(last, 0, scores.columns);
  return {scores.window > 0 ? std::clamp<int64_t>(last - scores.window, 0, end) : 0, end};
}

void clear_unseen(float* row, const Range& seen, int64_t columns) {
  std::fill(row, row + seen.begin, 0.0f);
  std::fill(row + seen.end, row + columns, 0.0f);
}

float largest_of(const float* values, int64_t count) {
  const Lanes lowest = fill(-std::numeric_limits<float>::infinity());
  Lanes most = lowest;
  int64_t i = 0;
  for (; i + width() <= count; i += width()) most = hn::Max(most, load(values + i, FullVector()));
  if (i < count) {
    const auto there = hn::FirstN(Floats(), static_cast<size_t>(count - i));
    most = hn::Max(most, hn::IfThenElse(there, load(values + i, PartialVector{count - i}), lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(Floats(), most));
}

void multiply_row(float* row, int64_t size, float factor) {
  sweep(size, [&](int64_t i, auto lanes)
                  HWY_ATTR { store(hn::Mul(load(row + i, lanes), fill(factor)), row + i, lanes); });
}

void step(const Scores& scores, float* largest, float* sum, float* y, int64_t dim) {
  for (int64_t r = 0; r < scores.rows; ++r) {
    float* row = scores.data + r * scores.stride;
    const Range seen = seen_by(scores, r);
    clear_unseen(row, seen, scores.columns);
    if (seen.size() <= 0) continue;
    const float most = std::max(largest[r], largest_of(row + seen.begin, seen.size()) * scores.scale);
    if (most > largest[r]) {
      if (sum[r] > 0) {
        const float factor = std::exp(largest[r] - most);
        sum[r] *= factor;
        multiply_row(y + r * dim, dim, factor);
      }
      largest[r] = most;
    }
    Lanes sums = none();
    sweep(seen.size(), [&](int64_t i, auto lanes) HWY_ATTR {
      float* at = row + seen.begin + i;
      const Lanes power = exponential(hn::MulSub(load(at, lanes), fill(scores.scale), fill(most)));
      sums = hn::Add(sums, only(power, lanes));
      store(power, at, lanes);
    });
    sum[r] += total(sums);
  }
}

void differentiate(const Scores& scores, float* dp, const float* lse, const float* delta) {
  for (int64_t r = 0; r < scores.rows; ++r) {
    float *row = scores.data + r * scores.stride, *grad = dp + r * scores.stride;
    const Range seen = seen_by(scores, r);
    clear_unseen(row, seen, scores.columns);
    clear_unseen(grad, seen, scores.columns);
    sweep(seen.size(), [&](int64_t i, auto lanes) HWY_ATTR {
      float *at = row + seen.begin + i, *grad_at = grad + seen.begin + i;
      const Lanes p = exponential(hn::MulSub(load(at, lanes), fill(scores.scale), fill(lse[r])));
      const Lanes change = hn::Sub(load(grad_at, lanes), fill(delta[r]));
      store(p, at, lanes);
      store(hn::Mul(hn::Mul(p, fill(scores.scale)), change), grad_at, lanes);
    });
  }
}

// kRows rows by kVectors vectors of y stay in registers while the keys pass by.
template <int kRows, int kVectors, class T, class Which>
HWY_INLINE void mix_some(const Scores& weights, int64_t row, const T* values, int64_t stride, float* y,
                         int64_t dim, Which lanes) {
  Lanes sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = load(y + r * dim + v * width(), lanes);
  const float* weight = weights.data + row * weights.stride;
  for (int64_t j = 0; j < weights.columns; ++j, values += stride) {
    fetch_ahead(values + 8 * stride, 1, kVectors * width(), stride);
    Lanes value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = load(values + v * width(), lanes);
    for (int r = 0; r < kRows; ++r) {
      const Lanes factor = fill(weight[r * weights.stride + j]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(factor, value[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) store(sums[r][v], y + r * dim + v * width(), lanes);
}

template <int kRows, class T>
void mix_few(const Scores& weights, int64_t row, const T* values, int64_t stride, float* y, int64_t dim) {
  float* to = y + row * dim;
  int64_t d = 0;
  for (; d + 4 * width() <= dim; d += 4 * width())
    mix_some<kRows, 4>(weights, row, values + d, stride, to + d, dim, FullVector());
  for (; d + 2 * width() <= dim; d += 2 * width())
    mix_some<kRows, 2>(weights, row, values + d, stride, to + d, dim, FullVector());
  for (; d + width() <= dim; d += width())
    mix_some<kRows, 1>(weights, row, values + d, stride, to + d, dim, FullVector());
  if (d < dim) mix_some<kRows, 1>(weights, row, values + d, stride, to + d, dim, PartialVector{dim - d});
}

void mix(const Scores& weights, const Block& values, float* y, int64_t dim) {
  visit_wide(values.dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(values.data);
    int64_t row = 0;
    for (; row + 4 <= weights.rows; row += 4) mix_few<4, T>(weights, row, from, values.stride, y, dim);
    for (; row + 2 <= weights.rows; row += 2) mix_few<2, T>(weights, row, from, values.stride, y, dim);
    if (row < weights.rows) mix_few<1, T>(weights, row, from, values.stride, y, dim);
  });
}

void pairs(const Block& a, const Block& b, int64_t rows, int64_t size, float* sums) {
  visit_wide(a.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t r = 0; r < rows; ++r) {
      const T *left = static_cast<const T*>(a.data) + r * a.stride,
              *right = static_cast<const T*>(b.data) + r * b.stride;
      Lanes sum = none();
      sweep(size, [&](int64_t i, auto lanes)
                      HWY_ATTR { sum = hn::MulAdd(load(left + i, lanes), load(right + i, lanes), sum); });
      sums[r] = total(sum);
    }
  });
}

void scale_each(float* rows, int64_t count, int64_t size, const float* factors) {
  for (int64_t r = 0; r < count; ++r) multiply_row(rows + r * size, size, factors[r]);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {
HWY_EXPORT(step);
HWY_EXPORT(differentiate);
HWY_EXPORT(mix);
HWY_EXPORT(pairs);
HWY_EXPORT(scale_each);
}  // namespace

void softmax_step(const Scores& scores, float* largest, float* sum, float* y, int64_t dim) {
  HWY_DYNAMIC_DISPATCH(step)(scores, largest, sum, y, dim);
}

void softmax_backward(const Scores& scores, float* dp, const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(differentiate)(scores, dp, lse, delta);
}

void mix_rows(const Scores& weights, const Block& values, float* y, int64_t dim) {
  HWY_DYNAMIC_DISPATCH(mix)(weights, values, y, dim);
}

void dot_pairs(const Block& a, const Block& b, int64_t rows, int64_t size, float* sums) {
  HWY_DYNAMIC_DISPATCH(pairs)(a, b, rows, size, sums);
}

void scale_rows(float* rows, int64_t count, int64_t size, const float* factors) {
  HWY_DYNAMIC_DISPATCH(scale_each)(rows, count, size, factors);
}

}  // namespace temper::backends
#endif  // HWY_ONCE
