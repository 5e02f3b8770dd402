#include <algorithm>

#include "base/threads.h"
#include "primitives/internal.h"

namespace temper::primitives {
namespace {

Shape with_last(Shape shape, int64_t size) {
  shape[shape.ndim() - 1] = size;
  return shape;
}

// c [m, n] (+)= a [m, k] b [k, n], compact float32.
void product(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n) {
  parallel_ranges(m, std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, k * n)),
                  [&](int64_t begin, int64_t end) {
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

// [batch, m, k] x [batch, k, n], compact float32.
Tensor batched_product(const Tensor& a, const Tensor& b) {
  const int64_t batch = a.dim(0), m = a.dim(1), k = a.dim(2), n = b.dim(2);
  Tensor c = Tensor::empty({batch, m, n}, DType::kF32);
  for (int64_t i = 0; i < batch; ++i)
    product(a.data<float>() + i * m * k, b.data<float>() + i * k * n, c.data<float>() + i * m * n, m, k, n);
  return c;
}

Tensor as_batch(const Tensor& x) { return x.ndim() == 3 ? x : x.reshape({1, x.dim(0), x.dim(1)}); }
Tensor transposed(const Tensor& x) { return x.transpose(1, 2).contiguous(); }

}  // namespace

Var matmul(Tape& tape, const Var& a, const Var& b, MatmulOptions options) {
  const int ndim = a.value.ndim();
  if (ndim != b.value.ndim() || (ndim != 2 && ndim != 3) || a.dtype() != b.dtype())
    fail("matmul of {} {} and {} {}", to_string(a.dtype()), to_string(a.shape()), to_string(b.dtype()),
         to_string(b.shape()));
  const bool flip = options.transpose_b;
  const Tensor x = as_batch(floats(a.value)), stored = as_batch(floats(b.value));
  const Tensor y = flip ? transposed(stored) : stored;
  if (x.dim(0) != y.dim(0) || x.dim(2) != y.dim(1))
    fail("matmul of {} and {}{}", to_string(a.shape()), to_string(b.shape()), flip ? " transposed" : "");
  Tensor out = batched_product(x, y);
  if (ndim == 2) out = out.reshape({out.dim(1), out.dim(2)});
  return tape.record(out.to(a.dtype()), {&a, &b}, [a, b, x, y, flip](const Tensor& grad) {
    const Tensor g = as_batch(floats(grad));
    if (a.requires_grad()) give(a, batched_product(g, transposed(y)).reshape(a.shape()));
    if (!b.requires_grad()) return;
    const Tensor db = batched_product(transposed(x), g);
    give(b, (flip ? transposed(db) : db).reshape(b.shape()));
  });
}

Var sum_last(Tape& tape, const Var& input) {
  const Tensor x = floats(input.value);
  Tensor out = Tensor::empty(with_last(x.shape(), 1), DType::kF32);
  const int64_t width = x.dim(-1), rows = out.numel();
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += x.data<float>()[r * width + i];
    out.data<float>()[r] = static_cast<float>(sum);
  }
  return tape.record(out.to(input.dtype()), {&input}, [input, rows, width](const Tensor& grad) {
    const Tensor g = floats(grad);
    Tensor dx = Tensor::empty(input.shape(), DType::kF32);
    for (int64_t r = 0; r < rows; ++r) std::fill_n(dx.data<float>() + r * width, width, g.data<float>()[r]);
    give(input, dx);
  });
}

Var max_last(Tape& tape, const Var& input) {
  const Tensor x = floats(input.value);
  const int64_t width = x.dim(-1);
  if (width == 0) fail("the largest of no values: {}", to_string(x.shape()));
  const int64_t rows = x.numel() / width;
  Tensor out = Tensor::empty(with_last(x.shape(), 1), DType::kF32);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data<float>() + r * width;
    out.data<float>()[r] = *std::max_element(row, row + width);
  }
  return tape.constant(out.to(input.dtype()));
}

Var normalize_last(Tape& tape, const Var& x, const Var& weight, float eps) {
  const Var mean = scale(tape, sum_last(tape, mul(tape, x, x)), 1.0f / static_cast<float>(x.value.dim(-1)));
  return mul(tape, mul(tape, x, rsqrt(tape, add_scalar(tape, mean, eps))), weight);
}

}  // namespace temper::primitives
