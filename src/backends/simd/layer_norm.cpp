#include "ops/layer_norm/layer_norm.h"

#include <cmath>

#include "backends/floats.h"
#include "backends/simd/grads.h"
#include "backends/simd/row_sums.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/layer_norm.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// sum = x + residual, rounded; Σ sum, of what was stored, so that the sum alone gives the same.
template <class T>
float add_rows(const T* x, const T* residual, T* sum, int64_t size) {
  Lanes sums = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    store(hn::Add(load(x + i, lanes), load(residual + i, lanes)), sum + i, lanes);
    sums = hn::Add(sums, load(sum + i, lanes));
  });
  return total(sums);
}

template <class T>
float sum_of(const T* x, int64_t size) {
  Lanes sums = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR { sums = hn::Add(sums, load(x + i, lanes)); });
  return total(sums);
}

// Σ (x - mean)²
template <class T>
float squares_of(const T* x, int64_t size, float mean) {
  Lanes squares = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes away = only(hn::Sub(load(x + i, lanes), fill(mean)), lanes);
    squares = hn::MulAdd(away, away, squares);
  });
  return total(squares);
}

void forward(const ops::LayerNorm& op, const ops::LayerNorm::Output& out, int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(-1);
  const auto count = static_cast<float>(size);
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T *weight = op.weight.data<T>(), *bias = op.bias.data<T>();
    float* stats = out.stats.data<float>() + 2 * begin;
    for (int64_t row = begin; row < end; ++row, stats += 2) {
      const T* x = op.x.data<T>() + row * size;
      T* y = out.y.data<T>() + row * size;
      float mean = 0;
      if (op.residual.defined()) {
        T* sum = out.sum.data<T>() + row * size;
        mean = add_rows(x, op.residual.data<T>() + row * size, sum, size) / count;
        x = sum;
      } else {
        mean = sum_of(x, size) / count;
      }
      const float scale = 1 / std::sqrt(squares_of(x, size, mean) / count + op.eps);
      stats[0] = mean;
      stats[1] = scale;
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes normed = hn::Mul(hn::Sub(load(x + i, lanes), fill(mean)), fill(scale));
        store(hn::MulAdd(normed, load(weight + i, lanes), load(bias + i, lanes)), y + i, lanes);
      });
    }
  });
}

// With n = (x - mean) · scale and g = dy · weight: dx = scale (g - mean(g) - n · mean(g n)) + dsum, if any.
// Adds Σ dy n and, behind it, Σ dy to sums [2, size], if any.
void backward(const ops::LayerNorm& op, const Tensor& stats, const NormGrads& grads, float* sums,
              int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(-1);
  const auto count = static_cast<float>(size);
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T* weight = op.weight.data<T>();
    for (int64_t row = begin; row < end; ++row) {
      const T *x = op.x.data<T>() + row * size, *grad = grads.dy.data<T>() + row * size;
      T* out = grads.dx.data<T>() + row * size;
      const T* dsum = grads.dsum.defined() ? grads.dsum.data<T>() + row * size : nullptr;
      const Lanes mean = fill(stats.data<float>()[2 * row]), scale = fill(stats.data<float>()[2 * row + 1]);
      Lanes products = none(), plain = none();
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes dy = load(grad + i, lanes), n = hn::Mul(hn::Sub(load(x + i, lanes), mean), scale);
        const Lanes g = hn::Mul(dy, load(weight + i, lanes));
        products = hn::MulAdd(g, n, products);
        plain = hn::Add(plain, g);
        if (sums == nullptr) return;
        store(hn::MulAdd(dy, n, load(sums + i, lanes)), sums + i, lanes);
        store(hn::Add(dy, load(sums + size + i, lanes)), sums + size + i, lanes);
      });
      const Lanes of_products = fill(total(products) / count), of_all = fill(total(plain) / count);
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes g = hn::Mul(load(grad + i, lanes), load(weight + i, lanes));
        const Lanes n = hn::Mul(hn::Sub(load(x + i, lanes), mean), scale);
        const Lanes dx = hn::Mul(scale, hn::NegMulAdd(n, of_products, hn::Sub(g, of_all)));
        store(dsum == nullptr ? dx : hn::Add(dx, load(dsum + i, lanes)), out + i, lanes);
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

using ops::LayerNorm;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

LayerNorm::Output run_forward(const LayerNorm& op) {
  const int64_t size = op.x.dim(-1), rows = op.x.numel() / std::max<int64_t>(size, 1);
  const LayerNorm::Output out{Tensor::empty(op.x.shape(), op.x.dtype()),
                              Tensor::empty({rows, 2}, DType::kF32),
                              op.residual.defined() ? Tensor::empty(op.x.shape(), op.x.dtype()) : Tensor()};
  parallel_ranges(rows, rows_per_task(size), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(op, out, begin, end);
  });
  return out;
}

Tensor run_backward(const LayerNorm& op, const Tensor& stats, const Tensor& dy, const Tensor& dsum,
                    const GradTarget& weight, const GradTarget& bias) {
  const int64_t size = op.x.dim(-1), rows = stats.dim(0);
  const NormGrads grads{dy, dsum, Tensor::empty(op.x.shape(), op.x.dtype())};
  RowSums sums(rows, size, weight.wanted() || bias.wanted() ? 2 * size : 0);
  parallel_ranges(rows, sums.grain(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(op, stats, grads, sums.piece(begin), begin, end);
  });
  sums.add_to(weight, 0);
  sums.add_to(bias, size);
  return grads.dx;
}

}  // namespace

void register_simd_layer_norm() {
  ops::kernels<LayerNorm>().add(
      "simd", {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
