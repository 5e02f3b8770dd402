#include "ops/rms_norm/rms_norm.h"
#include "backends/floats.h"
#include "backends/simd/grads.h"
#include "backends/simd/row_sums.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/rms_norm.cpp"
#include <hwy/foreach_target.h>

#include "backends/simd/squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// sum = x + residual, rounded; Σ sum². The square is of what was stored, so that the sum alone gives the
// same.
template <class T>
float add_and_square(const T* x, const T* residual, T* sum, int64_t size) {
  Lanes squares = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    store(hn::Add(load(x + i, lanes), load(residual + i, lanes)), sum + i, lanes);
    const Lanes value = load(sum + i, lanes);
    squares = hn::MulAdd(value, value, squares);
  });
  return total(squares);
}

void forward(const ops::RmsNorm& op, const ops::RmsNorm::Output& out, int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(-1);
  const Lanes offset = fill(op.offset);
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T* weight = op.weight.data<T>();
    T* y = out.y.data<T>() + begin * size;
    float* inv_rms = out.inv_rms.data<float>() + begin;
    RowCursor cursor(op.x, begin);
    for (int64_t row = begin; row < end; ++row, y += size, cursor.next()) {
      const T* x = op.x.data<T>() + cursor.offset();
      float squares = 0;
      if (op.residual.defined()) {
        T* sum = out.sum.data<T>() + row * size;
        squares = add_and_square(x, op.residual.data<T>() + row * size, sum, size);
        x = sum;
      } else {
        squares = square_sum(x, size);
      }
      const float scale = *inv_rms++ = inverse_rms(squares, size, op.eps);
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes normed = hn::Mul(load(x + i, lanes), fill(scale));
        store(hn::Mul(normed, hn::Add(load(weight + i, lanes), offset)), y + i, lanes);
      });
    }
  });
}

// With n = x · inv_rms and g = dy · (offset + weight): dx = inv_rms (g - n · mean(g n)) + dsum, if any. Adds
// Σ dy n to dweight, if any.
void backward(const ops::RmsNorm& op, const Tensor& inv_rms, const NormGrads& grads, float* dweight,
              int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(-1);
  const Lanes offset = fill(op.offset);
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T *weight = op.weight.data<T>(), *grad = grads.dy.data<T>() + begin * size;
    T* out = grads.dx.data<T>() + begin * size;
    RowCursor cursor(op.x, begin);
    for (int64_t row = begin; row < end; ++row, grad += size, out += size, cursor.next()) {
      const T* x = op.x.data<T>() + cursor.offset();
      const T* dsum = grads.dsum.defined() ? grads.dsum.data<T>() + row * size : nullptr;
      const Lanes scale = fill(inv_rms.data<float>()[row]);
      Lanes products = none();
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes g = load(grad + i, lanes), n = hn::Mul(load(x + i, lanes), scale);
        const Lanes gn = hn::Mul(g, n);
        products = hn::MulAdd(gn, hn::Add(load(weight + i, lanes), offset), products);
        if (dweight != nullptr) store(hn::Add(load(dweight + i, lanes), gn), dweight + i, lanes);
      });
      const Lanes mean = fill(total(products) / static_cast<float>(size));
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes g = hn::Mul(load(grad + i, lanes), hn::Add(load(weight + i, lanes), offset));
        const Lanes n = hn::Mul(load(x + i, lanes), scale);
        const Lanes dx = hn::Mul(scale, hn::NegMulAdd(n, mean, g));
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

using ops::RmsNorm;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

RmsNorm::Output run_forward(const RmsNorm& op) {
  const int64_t size = op.x.dim(-1), rows = op.x.numel() / std::max<int64_t>(size, 1);
  const RmsNorm::Output out{Tensor::empty(op.x.shape(), op.x.dtype()), Tensor::empty({rows}, DType::kF32),
                            op.residual.defined() ? Tensor::empty(op.x.shape(), op.x.dtype()) : Tensor()};
  parallel_ranges(rows, rows_per_task(size), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(op, out, begin, end);
  });
  return out;
}

Tensor run_backward(const RmsNorm& op, const Tensor& inv_rms, const Tensor& dy, const Tensor& dsum,
                    const GradTarget& weight) {
  const int64_t size = op.x.dim(-1), rows = inv_rms.numel();
  const NormGrads grads{dy, dsum, Tensor::empty(op.x.shape(), op.x.dtype())};
  RowSums sums(rows, size, weight.wanted() ? size : 0);
  parallel_ranges(rows, sums.grain(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(op, inv_rms, grads, sums.piece(begin), begin, end);
  });
  sums.add_to(weight, 0);
  return grads.dx;
}

}  // namespace

void register_simd_rms_norm() {
  ops::kernels<RmsNorm>().add("simd",
                              {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
