#include "backends/onednn/gated_rows.h"

#include "backends/floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/gated_rows.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

template <class T>
T* row_of(const Block& block, int64_t row) {
  return static_cast<T*>(block.data) + row * block.stride;
}

// silu(gate) * up, and its slopes.
struct PlainGate {
  explicit PlainGate(const ops::ExpertsGate&) {}
  HWY_INLINE Lanes value(Lanes gate, Lanes up) const { return hn::Mul(hn::Mul(gate, logistic(gate)), up); }
  struct Slopes {
    Lanes product, of_gate, of_up;
  };
  HWY_INLINE Slopes slopes(Lanes gate, Lanes up) const {
    const Lanes s = logistic(gate), silu = hn::Mul(gate, s);
    return {hn::Mul(silu, up), hn::MulAdd(silu, hn::Sub(fill(1), s), s), silu};
  }
  // Of a gradient d of the product.
  HWY_INLINE Lanes to_gate(Lanes d, Lanes up, const Slopes& at) const {
    return hn::Mul(hn::Mul(d, up), at.of_gate);
  }
};

// The clamped one.
struct ClampedGate {
  explicit ClampedGate(const ops::ExpertsGate& of) : alpha(of.alpha), limit(of.limit) {}
  HWY_INLINE Lanes cut_gate(Lanes gate) const { return at_most(fill(limit), gate); }
  HWY_INLINE Lanes cut_up(Lanes up) const {
    return hn::Add(at_most(fill(limit), at_least(fill(-limit), up)), fill(1));
  }
  HWY_INLINE Lanes value(Lanes gate, Lanes up) const {
    const Lanes g = cut_gate(gate);
    return hn::Mul(hn::Mul(g, logistic(hn::Mul(g, fill(alpha)))), cut_up(up));
  }
  struct Slopes {
    Lanes product, of_gate, of_up;
  };
  HWY_INLINE Slopes slopes(Lanes gate, Lanes up) const {
    const Lanes g = cut_gate(gate), s = logistic(hn::Mul(g, fill(alpha))), swish = hn::Mul(g, s);
    const Lanes slope = hn::MulAdd(hn::Mul(swish, fill(alpha)), hn::Sub(fill(1), s), s);
    return {hn::Mul(swish, cut_up(up)), hn::IfThenZeroElse(hn::Gt(gate, fill(limit)), slope),
            hn::IfThenZeroElse(hn::Gt(hn::Abs(up), fill(limit)), swish)};
  }
  HWY_INLINE Lanes to_gate(Lanes d, Lanes up, const Slopes& at) const {
    return hn::Mul(hn::Mul(d, cut_up(up)), at.of_gate);
  }

  float alpha, limit;
};

template <class T, class Gate>
void forward_rows(const GateUp& in, const float* weights, const Block& y, int64_t rows, int64_t size) {
  const Gate form(in.gate);
  for (int64_t r = 0; r < rows; ++r) {
    const T* const gates = row_of<T>(in.rows, r);
    T* const out = row_of<T>(y, r);
    const float weight = weights[r];
    sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes gate = load(gates + i, lanes), up = load(gates + in.up + i, lanes);
      store(hn::Mul(form.value(gate, up), fill(weight)), out + i, lanes);
    });
  }
}

template <class T, class Gate>
void backward_rows(const GateUp& in, const float* weights, const GateGradients& to, int64_t rows,
                   int64_t size) {
  const Gate form(in.gate);
  for (int64_t r = 0; r < rows; ++r) {
    const T* const gates = row_of<T>(in.rows, r);
    T *const out = row_of<T>(to.y, r), *const d = row_of<T>(to.d.rows, r);
    const float* const da = to.da + r * to.da_stride;
    const float weight = weights[r];
    Lanes dot = none();
    sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes gate = load(gates + i, lanes), up = load(gates + in.up + i, lanes),
                  grad = load(da + i, lanes);
      const auto at = form.slopes(gate, up);
      const Lanes weighted = hn::Mul(grad, fill(weight));
      dot = hn::Add(dot, only(hn::Mul(grad, at.product), lanes));
      store(form.to_gate(weighted, up, at), d + i, lanes);
      store(hn::Mul(weighted, at.of_up), d + to.d.up + i, lanes);
      store(hn::Mul(at.product, fill(weight)), out + i, lanes);
    });
    to.dots[r * to.dots_stride] = total(dot);
  }
}

void forward(const GateUp& in, const float* weights, const Block& y, int64_t rows, int64_t size) {
  visit_wide(in.rows.dtype, [&]<class T>() {
    if (in.gate.clamped)
      forward_rows<T, ClampedGate>(in, weights, y, rows, size);
    else
      forward_rows<T, PlainGate>(in, weights, y, rows, size);
  });
}

void backward(const GateUp& in, const float* weights, const GateGradients& to, int64_t rows, int64_t size) {
  visit_wide(in.rows.dtype, [&]<class T>() {
    if (in.gate.clamped)
      backward_rows<T, ClampedGate>(in, weights, to, rows, size);
    else
      backward_rows<T, PlainGate>(in, weights, to, rows, size);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {
HWY_EXPORT(forward);
HWY_EXPORT(backward);
}  // namespace

void gate_rows(const GateUp& in, const float* weights, const Block& y, int64_t rows, int64_t size) {
  HWY_DYNAMIC_DISPATCH(forward)(in, weights, y, rows, size);
}

void gate_rows_backward(const GateUp& in, const float* weights, const GateGradients& to, int64_t rows,
                        int64_t size) {
  HWY_DYNAMIC_DISPATCH(backward)(in, weights, to, rows, size);
}

}  // namespace temper::backends
#endif  // HWY_ONCE
