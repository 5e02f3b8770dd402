#include "ops/swiglu/swiglu.h"
#include "backends/floats.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/swiglu.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// What the sigmoid is of that an activation multiplies its input with, and y times the slope of that.
struct Silu {
  static HWY_INLINE Lanes inner(Lanes x) { return x; }
  static HWY_INLINE Lanes times_slope(Lanes y, Lanes) { return y; }
};
struct GeluTanh {
  static HWY_INLINE Lanes cubic(Lanes x) { return hn::Mul(hn::Mul(x, x), fill(ops::kGeluCubic)); }
  static HWY_INLINE Lanes inner(Lanes x) {
    return hn::Mul(fill(ops::kGeluScale), hn::MulAdd(x, cubic(x), x));
  }
  static HWY_INLINE Lanes times_slope(Lanes y, Lanes x) {
    return hn::Mul(hn::Mul(y, fill(ops::kGeluScale)), hn::MulAdd(cubic(x), fill(3), fill(1)));
  }
};

template <class Act, class T>
void forward_rows(const T* gate_up, T* y, int64_t rows, int64_t size) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * size, y += size)
    sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes gate = load(gate_up + i, lanes), up = load(gate_up + size + i, lanes);
      store(hn::Mul(hn::Mul(gate, logistic(Act::inner(gate))), up), y + i, lanes);
    });
}

// y is null if it is not needed.
template <class Act, class T>
void backward_rows(const T* gate_up, const T* dy, T* dgate_up, T* y, int64_t rows, int64_t size) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * size, dgate_up += 2 * size, dy += size)
    sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes gate = load(gate_up + i, lanes), up = load(gate_up + size + i, lanes),
                  grad = load(dy + i, lanes);
      const Lanes s = logistic(Act::inner(gate)), active = hn::Mul(gate, s);
      // d active = s + gate s (1 - s) · slope of inner
      const Lanes slope = hn::MulAdd(Act::times_slope(active, gate), hn::Sub(fill(1), s), s);
      store(hn::Mul(hn::Mul(grad, up), slope), dgate_up + i, lanes);
      store(hn::Mul(grad, active), dgate_up + size + i, lanes);
      if (y != nullptr) store(hn::Mul(active, up), y + row * size + i, lanes);
    });
}

// Calls f.template operator()<activation, T>().
template <class F>
void visit(const ops::Swiglu& op, F&& f) {
  visit_wide(op.gate_up.dtype(), [&]<class T>() {
    op.activation == ops::Activation::kSilu ? f.template operator()<Silu, T>()
                                            : f.template operator()<GeluTanh, T>();
  });
}

void forward(const ops::Swiglu& op, const Tensor& y, int64_t begin, int64_t end) {
  const int64_t size = y.dim(1);
  visit(op, [&]<class Act, class T>() {
    forward_rows<Act>(op.gate_up.data<T>() + begin * 2 * size, y.data<T>() + begin * size, end - begin, size);
  });
}

void backward(const ops::Swiglu& op, const Tensor& dy, const Tensor& dx, const Tensor& y, int64_t begin,
              int64_t end) {
  const int64_t size = dy.dim(1);
  visit(op, [&]<class Act, class T>() {
    backward_rows<Act>(op.gate_up.data<T>() + begin * 2 * size, dy.data<T>() + begin * size,
                       dx.data<T>() + begin * 2 * size, y.defined() ? y.data<T>() + begin * size : nullptr,
                       end - begin, size);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::Swiglu;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

Tensor run_forward(const Swiglu& op) {
  const int64_t rows = op.gate_up.dim(0), size = op.gate_up.dim(1) / 2;
  const Tensor y = Tensor::empty({rows, size}, op.gate_up.dtype());
  parallel_ranges(rows, rows_per_task(size), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(op, y, begin, end);
  });
  return y;
}

Tensor run_backward(const Swiglu& op, const Tensor& dy, const Tensor& y) {
  const Tensor dx = Tensor::empty(op.gate_up.shape(), op.gate_up.dtype());
  parallel_ranges(dy.dim(0), rows_per_task(dy.dim(1)), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(op, dy, dx, y, begin, end);
  });
  return dx;
}

}  // namespace

void register_simd_swiglu() {
  ops::kernels<Swiglu>().add("simd",
                             {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
