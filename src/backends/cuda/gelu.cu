#include "ops/gelu/gelu.h"

#include "backends/floats.h"
#include "backends/gpu/device_code.h"

namespace temper::backends {
namespace {

using ops::Gelu;
using ops::GeluForm;

// What x is multiplied by, and its slope times x.
struct Part {
  float below, sloped;
};

__device__ float logistic(float x) { return 1 / (1 + expf(-x)); }

template <GeluForm kForm>
__device__ Part part_of(float x) {
  if constexpr (kForm == GeluForm::kErf) {
    const float t = x * 0.70710678118654752f;
    return {0.5f * erfcf(-t), x * 0.39894228040143268f * expf(-t * t)};
  } else if constexpr (kForm == GeluForm::kTanh) {
    const float cubic = ops::kTanhGeluCubic * x * x;
    const float s = logistic(ops::kTanhGeluScale * x * (1 + cubic));
    return {s, x * ops::kTanhGeluScale * (1 + 3 * cubic) * s * (1 - s)};
  } else {
    const float s = logistic(ops::kQuickGeluScale * x);
    return {s, x * ops::kQuickGeluScale * s * (1 - s)};
  }
}

template <GeluForm kForm, class T, int N>
__global__ void write_forward(const T* x, T* y, int64_t count) {
  for (int64_t i = global_thread() * N; i < count; i += grid_threads() * N) {
    Pack<T, N> pack = load_pack<T, N>(x + i);
    for (int k = 0; k < N; ++k) {
      const float value = widen(pack.values[k]);
      pack.values[k] = narrow<T>(value * part_of<kForm>(value).below);
    }
    store_pack(y + i, pack);
  }
}

template <GeluForm kForm, class T, int N>
__global__ void write_backward(const T* x, const T* dy, T* dx, int64_t count) {
  for (int64_t i = global_thread() * N; i < count; i += grid_threads() * N) {
    const Pack<T, N> pack = load_pack<T, N>(x + i);
    Pack<T, N> grad = load_pack<T, N>(dy + i);
    for (int k = 0; k < N; ++k) {
      const Part part = part_of<kForm>(widen(pack.values[k]));
      grad.values[k] = narrow<T>(widen(grad.values[k]) * (part.below + part.sloped));
    }
    store_pack(dx + i, grad);
  }
}

// Calls f.template operator()<form, T, lanes>() with whole packs where there are such alone.
template <class F>
void visit(const Gelu& op, F&& f) {
  const auto lanes = [&]<GeluForm kForm, class T>() {
    op.x.numel() % kLanes<T> == 0 ? f.template operator()<kForm, T, kLanes<T>>()
                                  : f.template operator()<kForm, T, 1>();
  };
  visit_wide_or_brain(op.x.dtype(), [&]<class T>() {
    switch (op.form) {
      case GeluForm::kErf:
        return lanes.template operator()<GeluForm::kErf, T>();
      case GeluForm::kTanh:
        return lanes.template operator()<GeluForm::kTanh, T>();
      case GeluForm::kQuick:
        return lanes.template operator()<GeluForm::kQuick, T>();
    }
  });
}

Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), MemoryTag::kActivations, x.device());
}

Tensor forward(const Gelu& op) {
  const Tensor y = empty_like(op.x), x = aligned(op.x);
  if (y.numel() == 0) return y;
  visit(op, [&]<GeluForm kForm, class T, int N>() {
    write_forward<kForm, T, N><<<blocks_for(y.numel(), N), kThreads, 0, device::stream(y.device())>>>(
        static_cast<const T*>(x.raw()), static_cast<T*>(y.raw()), y.numel());
  });
  device::check_launch("gelu");
  return y;
}

Tensor backward(const Gelu& op, const Tensor& given_dy) {
  const Tensor dx = empty_like(op.x), x = aligned(op.x), dy = aligned(given_dy);
  if (dx.numel() == 0) return dx;
  visit(op, [&]<GeluForm kForm, class T, int N>() {
    write_backward<kForm, T, N><<<blocks_for(dx.numel(), N), kThreads, 0, device::stream(dx.device())>>>(
        static_cast<const T*>(x.raw()), static_cast<const T*>(dy.raw()), static_cast<T*>(dx.raw()), dx.numel());
  });
  device::check_launch("gelu backward");
  return dx;
}

}  // namespace

void register_cuda_gelu() {
  ops::kernels<Gelu>().add("cuda", {.hardware = hardware::kGpu,
                                    .accepts = refuse_float16<Gelu::Signature>,
                                    .forward = forward,
                                    .backward = backward});
}

}  // namespace temper::backends
