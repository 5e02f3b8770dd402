#include "ops/rms_norm_gated/rms_norm_gated.h"
#include "backends/floats.h"
#include "backends/simd/grads.h"
#include "backends/simd/row_sums.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/rms_norm_gated.cpp"
#include <hwy/foreach_target.h>

#include "backends/simd/squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// op.weight is float32.
void forward(const ops::RmsNormGated& op, const ops::RmsNormGated::Output& out, int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(2);
  const float* weight = op.weight.data<float>();
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T* x = op.x.data<T>() + begin * size;
    T* y = out.y.data<T>() + begin * size;
    float* inv_rms = out.inv_rms.data<float>() + begin;
    RowCursor cursor(op.gate, begin);
    for (int64_t row = begin; row < end; ++row, x += size, y += size, cursor.next()) {
      const T* gates = op.gate.data<T>() + cursor.offset();
      const float scale = *inv_rms++ = inverse_rms(square_sum(x, size), size, op.eps);
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes gate = load(gates + i, lanes), normed = hn::Mul(load(x + i, lanes), fill(scale));
        const Lanes silu = hn::Mul(gate, logistic(gate));
        store(hn::Mul(hn::Mul(normed, load(weight + i, lanes)), silu), y + i, lanes);
      });
    }
  });
}

// With n = x · inv_rms and g = dy · silu(gate) · weight: dx = inv_rms (g - n · mean(g n)). Adds
// Σ dy silu(gate) n to dweight, if any.
void backward(const ops::RmsNormGated& op, const Tensor& inv_rms, const GatedGrads& grads, float* dweight,
              int64_t begin, int64_t end) {
  const int64_t size = op.x.dim(2);
  const float* weight = op.weight.data<float>();
  visit_wide(op.x.dtype(), [&]<class T>() HWY_ATTR {
    const T *x = op.x.data<T>() + begin * size, *dy = grads.dy.data<T>() + begin * size;
    T *dx = grads.dx.data<T>() + begin * size, *dgate = grads.dgate.data<T>() + begin * size;
    RowCursor cursor(op.gate, begin);
    for (int64_t row = begin; row < end; ++row, x += size, dy += size, dx += size, dgate += size) {
      const T* gates = op.gate.data<T>() + cursor.offset();
      cursor.next();
      const Lanes scale = fill(inv_rms.data<float>()[row]);
      Lanes products = none();
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes gate = load(gates + i, lanes), s = logistic(gate), silu = hn::Mul(gate, s);
        const Lanes grad = load(dy + i, lanes), n = hn::Mul(load(x + i, lanes), scale),
                    factor = load(weight + i, lanes);
        const Lanes along = hn::Mul(hn::Mul(grad, silu), n);
        products = hn::MulAdd(along, factor, products);
        if (dweight != nullptr) store(hn::Add(load(dweight + i, lanes), along), dweight + i, lanes);
        const Lanes slope = hn::MulAdd(silu, hn::Sub(fill(1), s), s);
        store(hn::Mul(hn::Mul(grad, hn::Mul(n, factor)), slope), dgate + i, lanes);
      });
      const Lanes mean = fill(total(products) / static_cast<float>(size));
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes gate = load(gates + i, lanes), n = hn::Mul(load(x + i, lanes), scale);
        const Lanes g =
            hn::Mul(hn::Mul(load(dy + i, lanes), load(weight + i, lanes)), hn::Mul(gate, logistic(gate)));
        store(hn::Mul(scale, hn::NegMulAdd(n, mean, g)), dx + i, lanes);
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

using ops::RmsNormGated;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

RmsNormGated with_wide_weight(RmsNormGated op) {
  op.weight = op.weight.to(DType::kF32, MemoryTag::kWorkspace);
  return op;
}

RmsNormGated::Output run_forward(const RmsNormGated& given) {
  const RmsNormGated op = with_wide_weight(given);
  const RmsNormGated::Output out{Tensor::empty(op.x.shape(), op.x.dtype()),
                                 Tensor::empty({op.x.dim(0), op.x.dim(1)}, DType::kF32)};
  parallel_ranges(out.inv_rms.numel(), rows_per_task(op.x.dim(2)), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(op, out, begin, end);
  });
  return out;
}

RmsNormGated::Grads run_backward(const RmsNormGated& given, const Tensor& inv_rms, const Tensor& dy,
                                 const GradTarget& weight) {
  const RmsNormGated op = with_wide_weight(given);
  const int64_t rows = inv_rms.numel(), size = op.x.dim(2);
  const GatedGrads grads{dy, Tensor::empty(op.x.shape(), op.x.dtype()),
                         Tensor::empty(op.x.shape(), op.x.dtype())};
  const RowSums sums(rows, size, weight.wanted() ? size : 0);
  parallel_ranges(rows, sums.grain(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(op, inv_rms, grads, sums.piece(begin), begin, end);
  });
  sums.add_to(weight, 0);
  return {grads.dx, grads.dgate};
}

}  // namespace

void register_simd_rms_norm_gated() {
  ops::kernels<RmsNormGated>().add(
      "simd",
      {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward, .batch_invariant = true});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
