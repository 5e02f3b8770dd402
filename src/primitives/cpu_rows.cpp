#include <algorithm>

#include "base/threads.h"
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

void sum_last(const Tensor& x, const Tensor& y) {
  const int64_t width = x.dim(-1), rows = y.numel();
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += x.data<float>()[r * width + i];
    y.data<float>()[r] = static_cast<float>(sum);
  }
}

void max_last(const Tensor& x, const Tensor& y) {
  const int64_t width = x.dim(-1), rows = y.numel();
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data<float>() + r * width;
    y.data<float>()[r] = *std::max_element(row, row + width);
  }
}

void spread_last(const Tensor& x, const Tensor& y) {
  const int64_t width = y.dim(-1), rows = x.numel();
  for (int64_t r = 0; r < rows; ++r) std::fill_n(y.data<float>() + r * width, width, x.data<float>()[r]);
}

void gather_rows(const Tensor& table, const Tensor& ids, const Tensor& y) {
  const auto rows = ids.values<int32_t>();
  for (size_t i = 0; i < rows.size(); ++i)
    y.narrow(0, static_cast<int64_t>(i), 1).copy_from(table.narrow(0, rows[i], 1));
}

void gather_rows_gradient(const Tensor& dy, const Tensor& ids, const Tensor& dtable) {
  const int64_t width = dtable.dim(1);
  const auto rows = ids.values<int32_t>();
  dtable.fill_zero();
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t c = 0; c < width; ++c)
      dtable.data<float>()[rows[i] * width + c] += dy.data<float>()[static_cast<int64_t>(i) * width + c];
}

void take_last(const Tensor& x, const Tensor& ids, const Tensor& y) {
  const int64_t width = x.dim(-1);
  const auto columns = ids.values<int32_t>();
  for (size_t r = 0; r < columns.size(); ++r)
    y.data<float>()[r] = x.data<float>()[static_cast<int64_t>(r) * width + columns[r]];
}

void take_last_gradient(const Tensor& dy, const Tensor& ids, const Tensor& dx) {
  const int64_t width = dx.dim(-1);
  const auto columns = ids.values<int32_t>();
  dx.fill_zero();
  for (size_t r = 0; r < columns.size(); ++r)
    dx.data<float>()[static_cast<int64_t>(r) * width + columns[r]] = dy.data<float>()[r];
}

}  // namespace temper::primitives::cpu
