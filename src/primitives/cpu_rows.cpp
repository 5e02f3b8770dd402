#include <algorithm>
#include <span>
#include <vector>

#include "base/threads/threads.h"
#include "primitives/cpu.h"

namespace temper::primitives::cpu {
namespace {

// c [m, n] = a [m, k] b [k, n].
void product(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n) {
  parallel_ranges(m, std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, k * n)),
                  [=](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      float* row = c + i * n;
                      std::fill(row, row + n, 0.f);
                      for (int64_t l = 0; l < k; ++l) {
                        const float factor = a[i * k + l];
                        for (int64_t j = 0; j < n; ++j) row[j] += factor * b[l * n + j];
                      }
                    }
                  });
}

}  // namespace

void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c) {
  const Tensor left = transpose_a ? a.transpose(1, 2).contiguous() : a,
               right = transpose_b ? b.transpose(1, 2).contiguous() : b;
  const int64_t batch = c.dim(0), m = c.dim(1), k = left.dim(2), n = c.dim(2);
  for (int64_t i = 0; i < batch; ++i)
    product(left.data<float>() + i * m * k, right.data<float>() + i * k * n, c.data<float>() + i * m * n, m,
            k, n);
}

namespace {

constexpr int64_t kSideBySide = 4;

// Rows that are worth another thread, a multiple of those that are summed side by side.
int64_t rows_at_once(int64_t width) {
  constexpr int64_t kElements = 1 << 12;
  return (kElements / std::max<int64_t>(width, 1) + kSideBySide) / kSideBySide * kSideBySide;
}

// Each row from its first number on; a sum waits for the one before, so some rows are summed side by side.
template <int64_t kRows>
void sum_rows_of(const float* x, int64_t width, float* y) {
  double sums[kRows] = {};
  for (int64_t i = 0; i < width; ++i)
    for (int64_t r = 0; r < kRows; ++r) sums[r] += x[r * width + i];
  for (int64_t r = 0; r < kRows; ++r) y[r] = static_cast<float>(sums[r]);
}

}  // namespace

void sum_last(const Tensor& x, const Tensor& y) {
  const int64_t width = x.dim(-1);
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  parallel_ranges(y.numel(), rows_at_once(width), [&](int64_t begin, int64_t end) {
    int64_t r = begin;
    for (; r + kSideBySide <= end; r += kSideBySide)
      sum_rows_of<kSideBySide>(from + r * width, width, to + r);
    for (; r < end; ++r) sum_rows_of<1>(from + r * width, width, to + r);
  });
}

void max_last(const Tensor& x, const Tensor& y) {
  const int64_t width = x.dim(-1);
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  parallel_ranges(y.numel(), rows_at_once(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) to[r] = *std::max_element(from + r * width, from + (r + 1) * width);
  });
}

void spread_last(const Tensor& x, const Tensor& y) {
  const int64_t width = y.dim(-1), rows = x.numel();
  for (int64_t r = 0; r < rows; ++r) std::fill_n(y.data<float>() + r * width, width, x.data<float>()[r]);
}

namespace {

template <class T>
void sum_rows(const T* x, int64_t stride, std::span<const int32_t> ids, T* y, std::vector<float>& sums) {
  if (ids.size() == 1) {
    std::copy_n(x + ids[0] * stride, sums.size(), y);
    return;
  }
  std::fill(sums.begin(), sums.end(), 0.f);
  for (const int32_t id : ids)
    for (size_t c = 0; c < sums.size(); ++c)
      sums[c] += static_cast<float>(x[id * stride + static_cast<int64_t>(c)]);
  for (size_t c = 0; c < sums.size(); ++c) y[c] = T(sums[c]);
}

}  // namespace

void sum_listed_rows(const Tensor& x, const Tensor& starts, const Tensor& ids, const Tensor& y) {
  constexpr int64_t kGrain = 1 << 14;  // elements that are worth another thread
  const int64_t width = y.dim(0) == 0 ? 0 : y.numel() / y.dim(0);
  const auto list = ids.values<int32_t>();
  const auto begin_of = [&](int64_t row) {
    return static_cast<size_t>(starts.defined() ? starts.data<int32_t>()[row] : row);
  };
  visit_float(y.dtype(), [&]<class T>() {
    parallel_ranges(y.dim(0), kGrain / std::max<int64_t>(width, 1) + 1, [&](int64_t begin, int64_t end) {
      std::vector<float> sums(static_cast<size_t>(width));
      for (int64_t row = begin; row < end; ++row)
        sum_rows(x.data<T>(), x.stride(0), list.subspan(begin_of(row), begin_of(row + 1) - begin_of(row)),
                 y.data<T>() + row * width, sums);
    });
  });
}

namespace {

// Calls f(row, place among all ids, column).
template <class F>
void for_each_taken(const Tensor& ids, int64_t rows, F f) {
  if (rows == 0) return;
  const auto columns = ids.values<int32_t>();
  const size_t each = columns.size() / static_cast<size_t>(rows);
  for (size_t i = 0; i < columns.size(); ++i) f(static_cast<int64_t>(i / each), i, columns[i]);
}

}  // namespace

void take_last(const Tensor& x, const Tensor& ids, const Tensor& y) {
  const int64_t width = x.dim(-1);
  for_each_taken(ids, x.numel() / width, [&](int64_t row, size_t i, int32_t column) {
    y.data<float>()[i] = x.data<float>()[row * width + column];
  });
}

void take_last_gradient(const Tensor& dy, const Tensor& ids, const Tensor& dx) {
  const int64_t width = dx.dim(-1);
  dx.fill_zero();
  for_each_taken(ids, dx.numel() / width, [&](int64_t row, size_t i, int32_t column) {
    dx.data<float>()[row * width + column] += dy.data<float>()[i];
  });
}

}  // namespace temper::primitives::cpu
