#include <cmath>

#include "backends/floats.h"
#include "backends/simd/rows.h"
#include "backends/simd/simd.h"
#include "base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/rms_norm.cpp"
#include <hwy/foreach_target.h>

#include "backends/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

template <class T>
float inverse_rms(const T* x, int64_t size, float eps) {
  Lanes squares = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes value = load(x + i, lanes);
    squares = hn::MulAdd(value, value, squares);
  });
  return 1.0f / std::sqrt(total(squares) / static_cast<float>(size) + eps);
}

void forward(const ops::RmsNorm& op, const ops::RmsNorm::Output& out, int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(-1);
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T* weight = op.weight.data<T>();
    T* y = out.y.data<T>() + begin * size;
    float* inv_rms = out.inv_rms.data<float>() + begin;
    RowCursor cursor(op.x, begin);
    for (int64_t row = begin; row < end; ++row, y += size, cursor.next()) {
      const T* x = op.x.data<T>() + cursor.offset();
      const float scale = *inv_rms++ = inverse_rms(x, size, op.eps);
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes normed = hn::Mul(load(x + i, lanes), fill(scale));
        store(hn::Mul(normed, load(weight + i, lanes)), y + i, lanes);
      });
    }
  });
}

// With n = x · inv_rms and g = dy · weight: dx = inv_rms (g - n · mean(g n)). Adds Σ dy n to dweight, if any.
void backward(const ops::RmsNorm& op, const Tensor& inv_rms, const Tensor& dy, const Tensor& dx,
              float* dweight, int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(-1);
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T *weight = op.weight.data<T>(), *grad = dy.data<T>() + begin * size;
    T* out = dx.data<T>() + begin * size;
    RowCursor cursor(op.x, begin);
    for (int64_t row = begin; row < end; ++row, grad += size, out += size, cursor.next()) {
      const T* x = op.x.data<T>() + cursor.offset();
      const Lanes scale = fill(inv_rms.data<float>()[row]);
      Lanes products = none();
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes g = load(grad + i, lanes), n = hn::Mul(load(x + i, lanes), scale);
        const Lanes gn = hn::Mul(g, n);
        products = hn::MulAdd(gn, load(weight + i, lanes), products);
        if (dweight != nullptr) store(hn::Add(load(dweight + i, lanes), gn), dweight + i, lanes);
      });
      const Lanes mean = fill(total(products) / static_cast<float>(size));
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes g = hn::Mul(load(grad + i, lanes), load(weight + i, lanes));
        const Lanes n = hn::Mul(load(x + i, lanes), scale);
        store(hn::Mul(scale, hn::NegMulAdd(n, mean, g)), out + i, lanes);
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

using ops::RmsNorm;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

RmsNorm::Output run_forward(const RmsNorm& op) {
  const int64_t size = op.x.dim(-1), rows = op.x.numel() / std::max<int64_t>(size, 1);
  const RmsNorm::Output out{Tensor::empty(op.x.shape(), op.x.dtype()), Tensor::empty({rows}, DType::kF32)};
  parallel_ranges(rows, rows_per_task(size), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(op, out, begin, end);
  });
  return out;
}

Tensor run_backward(const RmsNorm& op, const Tensor& inv_rms, const Tensor& dy, const GradTarget& weight) {
  const int64_t size = op.x.dim(-1), rows = inv_rms.numel();
  const Tensor dx = Tensor::empty(op.x.shape(), op.x.dtype());
  if (!weight.wanted()) {
    parallel_ranges(rows, rows_per_task(size), [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(backward)(op, inv_rms, dy, dx, nullptr, begin, end);
    });
    return dx;
  }
  // Each piece sums its rows into a row of its own; the pieces are then added in order. How many there are
  // depends on the shape alone, so the sum is the same for any number of threads.
  constexpr int64_t kMaxPieces = 64;
  const int64_t grain = std::max(rows_per_task(size), (rows + kMaxPieces - 1) / kMaxPieces);
  const int64_t pieces = (rows + grain - 1) / grain;
  const Tensor partial = Tensor::empty({pieces, size}, DType::kF32, MemoryTag::kWorkspace);
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    float* sums = partial.data<float>() + begin / grain * size;
    std::fill_n(sums, size, 0.0f);
    HWY_DYNAMIC_DISPATCH(backward)(op, inv_rms, dy, dx, sums, begin, end);
  });
  float* out = weight.buffer.data<float>();
  if (!weight.accumulate) std::fill_n(out, size, 0.0f);
  parallel_ranges(size, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t piece = 0; piece < pieces; ++piece)
      for (int64_t i = begin; i < end; ++i) out[i] += partial.data<float>()[piece * size + i];
  });
  return dx;
}

}  // namespace

ops::Kernel<RmsNorm> rms_norm_kernel() {
  return {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward};
}

}  // namespace temper::backends
#endif  // HWY_ONCE
