#include "backends/floats.h"
#include "backends/simd/rows.h"
#include "backends/simd/simd.h"
#include "base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/rotary.cpp"
#include <hwy/foreach_target.h>

#include "backends/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

template <class T>
void rotate_head(const T* x, const float* cos, const float* sin, float sign, T* y, int64_t half) {
  sweep(half, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes low = load(x + i, lanes), high = load(x + half + i, lanes);
    const Lanes c = load(cos + i, lanes), s = hn::Mul(load(sin + i, lanes), fill(sign));
    store(hn::NegMulAdd(high, s, hn::Mul(low, c)), y + i, lanes);
    store(hn::MulAdd(low, s, hn::Mul(high, c)), y + half + i, lanes);
  });
}

// Rotates tokens [begin, end) of x into y; sign -1 rotates back.
void rotate(const ops::Rotary& op, const Tensor& x, float sign, const Tensor& y, int64_t begin, int64_t end) {
  const int64_t heads = x.dim(1), dim = x.dim(2), half = dim / 2;
  visit_wide(x.dtype(), [&]<class T>() HWY_ATTR {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t position = op.positions.data<int32_t>()[token];
      const float *cos = op.cos.data<float>() + position * half,
                  *sin = op.sin.data<float>() + position * half;
      for (int64_t head = 0; head < heads; ++head)
        rotate_head(x.data<T>() + token * x.stride(0) + head * x.stride(1), cos, sin, sign,
                    y.data<T>() + (token * heads + head) * dim, half);
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

using ops::Rotary;
HWY_EXPORT(rotate);

Tensor run(const Rotary& op, const Tensor& x, float sign) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  parallel_ranges(x.dim(0), rows_per_task(x.dim(1) * x.dim(2)), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotate)(op, x, sign, y, begin, end);
  });
  return y;
}

Tensor run_forward(const Rotary& op) { return run(op, op.x, 1); }
Tensor run_backward(const Rotary& op, const Tensor& dy) { return run(op, dy, -1); }

}  // namespace

ops::Kernel<Rotary> rotary_kernel() {
  return {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward};
}

}  // namespace temper::backends
#endif  // HWY_ONCE
