#include "ops/gelu/gelu.h"
#include "backends/floats.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/gelu.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// What x is multiplied by, and that and its slope times x.
struct Part {
  Lanes below, sloped;
};

struct Tanh {
  static HWY_INLINE Part at(Lanes x) {
    const Lanes cubic = hn::Mul(hn::Mul(x, x), fill(ops::kTanhGeluCubic));
    const Lanes inner = hn::Mul(fill(ops::kTanhGeluScale), hn::MulAdd(x, cubic, x));
    const Lanes slope = hn::Mul(fill(ops::kTanhGeluScale), hn::MulAdd(cubic, fill(3), fill(1)));
    const Lanes s = logistic(inner);
    return {s, hn::Mul(hn::Mul(x, slope), hn::Mul(s, hn::Sub(fill(1), s)))};
  }
};
struct Quick {
  static HWY_INLINE Part at(Lanes x) {
    const Lanes inner = hn::Mul(x, fill(ops::kQuickGeluScale)), s = logistic(inner);
    return {s, hn::Mul(inner, hn::Mul(s, hn::Sub(fill(1), s)))};
  }
};

// The normal distribution below x, 0.5 (1 + erf(t)) with t = x / √2, to about 5e-8. Near 0 erf is an odd
// polynomial; elsewhere 1 - |erf| is a power, whose exponent is a polynomial of |t| (N. Juffa's
// approximations of erff, 2015). Both halves of the range are computed, so that nothing cancels below 0.
struct Erf {
  static HWY_INLINE Lanes near(Lanes t, Lanes square) {
    Lanes sum = fill(-5.96761703e-4f);
    for (const float factor :
         {4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f, -3.76125336e-1f, 1.28379166e-1f})
      sum = hn::MulAdd(sum, square, fill(factor));
    return hn::MulAdd(sum, t, t);
  }
  // 1 - erf(size), for sizes from 0.92 on.
  static HWY_INLINE Lanes rest(Lanes size, Lanes square) {
    const Lanes high = hn::MulAdd(fill(-1.72853470e-5f), size, fill(3.83197126e-4f)),
                low = hn::MulAdd(fill(-3.88396438e-3f), size, fill(2.42546219e-2f));
    Lanes sum = hn::MulAdd(high, square, low);
    for (const float factor : {-1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f})
      sum = hn::MulAdd(sum, size, fill(factor));
    return exponential(hn::MulSub(sum, size, size));
  }
  static HWY_INLINE Part at(Lanes x) {
    const Lanes t = hn::Mul(x, fill(0.70710678118654752f)), size = hn::Abs(t), square = hn::Mul(t, t);
    const Lanes half = fill(0.5f), tail = hn::Mul(half, rest(size, square));
    const Lanes far = hn::IfThenElse(hn::Lt(x, none()), tail, hn::Sub(fill(1), tail));
    const Lanes below =
        hn::IfThenElse(hn::Lt(size, fill(0.927734375f)), hn::MulAdd(half, near(t, square), half), far);
    const Lanes density = hn::Mul(fill(0.39894228040143268f), exponential(hn::Neg(square)));
    return {below, hn::Mul(x, density)};
  }
};

// Calls f.template operator()<form, T>().
template <class F>
void visit(const ops::Gelu& op, F&& f) {
  visit_wide(op.x.dtype(), [&]<class T>() {
    switch (op.form) {
      case ops::GeluForm::kErf:
        return f.template operator()<Erf, T>();
      case ops::GeluForm::kTanh:
        return f.template operator()<Tanh, T>();
      case ops::GeluForm::kQuick:
        return f.template operator()<Quick, T>();
    }
  });
}

template <class Form, class T>
void forward_some(const T* x, T* y, int64_t count) {
  sweep(count, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes value = load(x + i, lanes);
    store(hn::Mul(value, Form::at(value).below), y + i, lanes);
  });
}

template <class Form, class T>
void backward_some(const T* x, const T* dy, T* dx, int64_t count) {
  sweep(count, [&](int64_t i, auto lanes) HWY_ATTR {
    const Part part = Form::at(load(x + i, lanes));
    store(hn::Mul(load(dy + i, lanes), hn::Add(part.below, part.sloped)), dx + i, lanes);
  });
}

void forward(const ops::Gelu& op, const Tensor& y, int64_t begin, int64_t end) {
  visit(op, [&]<class Form, class T>() {
    forward_some<Form>(op.x.data<T>() + begin, y.data<T>() + begin, end - begin);
  });
}

void backward(const ops::Gelu& op, const Tensor& dy, const Tensor& dx, int64_t begin, int64_t end) {
  visit(op, [&]<class Form, class T>() {
    backward_some<Form>(op.x.data<T>() + begin, dy.data<T>() + begin, dx.data<T>() + begin, end - begin);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::Gelu;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

constexpr int64_t kGrain = 1 << 14;  // elements of a task

Tensor run_forward(const Gelu& op) {
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype());
  parallel_ranges(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(op, y, begin, end);
  });
  return y;
}

Tensor run_backward(const Gelu& op, const Tensor& dy) {
  const Tensor dx = Tensor::empty(op.x.shape(), op.x.dtype());
  parallel_ranges(dx.numel(), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(op, dy, dx, begin, end);
  });
  return dx;
}

}  // namespace

void register_simd_gelu() {
  ops::kernels<Gelu>().add("simd",
                           {.accepts = refuse_float16, .forward = run_forward, .backward = run_backward});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
