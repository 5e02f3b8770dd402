#include "backends/onednn/delta_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/delta_rows.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::delta_rows {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

float dot_row(const float* a, const float* b, int64_t size) {
  Lanes sum = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    sum = hn::MulAdd(load(a + i, lanes), load(b + i, lanes), sum);  // lanes beyond the end are 0
  });
  return total(sum);
}

float sum_row(const float* a, int64_t size) {
  Lanes sum = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR { sum = hn::Add(sum, load(a + i, lanes)); });
  return total(sum);
}

void scale_row(const float* from, float factor, float* to, int64_t size) {
  sweep(size, [&](int64_t i, auto lanes)
                  HWY_ATTR { store(hn::Mul(load(from + i, lanes), fill(factor)), to + i, lanes); });
}

void add_scaled_row(const float* from, float factor, float* to, int64_t size) {
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    store(hn::MulAdd(load(from + i, lanes), fill(factor), load(to + i, lanes)), to + i, lanes);
  });
}

void multiply_rows(const float* a, const float* b, float factor, float* to, int64_t size) {
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    store(hn::Mul(hn::Mul(load(a + i, lanes), load(b + i, lanes)), fill(factor)), to + i, lanes);
  });
}

// Columns [i, i + kVectors vectors), whose sums do not wait for each other.
template <int kVectors, class Part>
HWY_INLINE void solve_columns(const Triangle& triangle, float* u, int64_t stride, Part lanes) {
  const int64_t rows = triangle.end - triangle.begin;
  for (int64_t step = 1; step < rows; ++step) {
    const int64_t t = triangle.upwards ? triangle.end - 1 - step : triangle.begin + step,
                  first = triangle.upwards ? t + 1 : triangle.begin;
    float* const to = u + t * stride;
    Lanes sums[kVectors];
    for (int v = 0; v < kVectors; ++v) sums[v] = load(to + v * width(), lanes);
    for (int64_t s = first; s < first + step; ++s) {
      const Lanes factor = fill(triangle.n[t * triangle.row_stride + s * triangle.column_stride]);
      for (int v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(factor, load(u + s * stride + v * width(), lanes), sums[v]);
    }
    for (int v = 0; v < kVectors; ++v) store(sums[v], to + v * width(), lanes);
  }
}

void solve_rows(const Triangle& triangle, float* u, int64_t size) {
  constexpr int kVectors = 4;
  int64_t i = 0;
  for (; i + kVectors * width() <= size; i += kVectors * width())
    solve_columns<kVectors>(triangle, u + i, size, FullVector());
  for (; i + width() <= size; i += width()) solve_columns<1>(triangle, u + i, size, FullVector());
  if (i < size) solve_columns<1>(triangle, u + i, size, PartialVector{size - i});
}

float decays(const DecayRow& row, int64_t size) {
  Lanes dbeta = none();
  const Lanes beta = fill(row.beta);
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes decay = load(row.decay + i, lanes), kk = load(row.kk + i, lanes);
    const Lanes of_qk = hn::Mul(load(row.dp + i, lanes), decay),
                of_a = hn::Mul(load(row.g + i, lanes), decay), of_kk = hn::Mul(of_a, beta);
    dbeta = hn::NegMulAdd(of_a, kk, dbeta);
    Lanes along = hn::NegMulAdd(of_kk, kk, hn::Mul(of_qk, load(row.qk + i, lanes)));
    if (row.dlast != nullptr) along = hn::MulAdd(decay, load(row.dlast + i, lanes), along);
    store(hn::Neg(of_kk), row.of_kk + i, lanes);
    store(of_qk, row.of_qk + i, lanes);
    store(along, row.along + i, lanes);
  });
  return total(dbeta);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends::delta_rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends::delta_rows {
namespace {
HWY_EXPORT(dot_row);
HWY_EXPORT(sum_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(add_scaled_row);
HWY_EXPORT(multiply_rows);
HWY_EXPORT(solve_rows);
HWY_EXPORT(decays);
}  // namespace

float dot(const float* a, const float* b, int64_t size) { return HWY_DYNAMIC_DISPATCH(dot_row)(a, b, size); }
float sum(const float* a, int64_t size) { return HWY_DYNAMIC_DISPATCH(sum_row)(a, size); }
void scale(const float* from, float factor, float* to, int64_t size) {
  HWY_DYNAMIC_DISPATCH(scale_row)(from, factor, to, size);
}
void add_scaled(const float* from, float factor, float* to, int64_t size) {
  HWY_DYNAMIC_DISPATCH(add_scaled_row)(from, factor, to, size);
}
void multiply(const float* a, const float* b, float factor, float* to, int64_t size) {
  HWY_DYNAMIC_DISPATCH(multiply_rows)(a, b, factor, to, size);
}
void solve(const Triangle& triangle, float* u, int64_t width) {
  HWY_DYNAMIC_DISPATCH(solve_rows)(triangle, u, width);
}
float decay_row(const DecayRow& row, int64_t size) { return HWY_DYNAMIC_DISPATCH(decays)(row, size); }

}  // namespace temper::backends::delta_rows
#endif  // HWY_ONCE
