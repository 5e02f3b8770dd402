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

void forward(const GateUp& in, const float* weights, const Block& y, int64_t rows, int64_t size) {
  visit_wide(in.rows.dtype, [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      const T* const gates = row_of<T>(in.rows, r);
      T* const out = row_of<T>(y, r);
      const float weight = weights[r];
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes gate = load(gates + i, lanes), up = load(gates + in.up + i, lanes);
        const Lanes silu = hn::Mul(gate, logistic(gate));
        store(hn::Mul(hn::Mul(silu, up), fill(weight)), out + i, lanes);
      });
    }
  });
}

void backward(const GateUp& in, const float* weights, const GateGradients& to, int64_t rows, int64_t size) {
  visit_wide(in.rows.dtype, [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      const T* const gates = row_of<T>(in.rows, r);
      T *const out = row_of<T>(to.y, r), *const d = row_of<T>(to.d.rows, r);
      const float* const da = to.da + r * to.da_stride;
      const float weight = weights[r];
      Lanes dot = none();
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        const Lanes gate = load(gates + i, lanes), up = load(gates + in.up + i, lanes),
                    grad = load(da + i, lanes);
        const Lanes s = logistic(gate), silu = hn::Mul(gate, s), product = hn::Mul(silu, up);
        const Lanes slope = hn::MulAdd(silu, hn::Sub(fill(1), s), s), weighted = hn::Mul(grad, fill(weight));
        dot = hn::Add(dot, only(hn::Mul(grad, product), lanes));
        store(hn::Mul(hn::Mul(weighted, up), slope), d + i, lanes);
        store(hn::Mul(weighted, silu), d + to.d.up + i, lanes);
        store(hn::Mul(product, fill(weight)), out + i, lanes);
      });
      to.dots[r * to.dots_stride] = total(dot);
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
