#include "backends/cuda/cuda.h"
#include "backends/gpu.h"

namespace temper::backends {
namespace {

using ops::Swiglu;

__device__ float sigmoid(float z) { return 1.0f / (1.0f + __expf(-z)); }

// One block a row (or a part of it): gate and up of the same element lie `intermediate` apart.
template <class T, int N>
__global__ void forward_rows(const T* gate_up, T* y, int64_t intermediate) {
  const T* gate = gate_up + int64_t{blockIdx.x} * 2 * intermediate;
  T* out = y + int64_t{blockIdx.x} * intermediate;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < intermediate;
       i += int64_t{gridDim.y} * blockDim.x * N) {
    Pack<T, N> g = load_pack<T, N>(gate + i);
    const Pack<T, N> u = load_pack<T, N>(gate + intermediate + i);
    for (int k = 0; k < N; ++k) {
      const float z = widen(g.values[k]);
      g.values[k] = narrow<T>(z * sigmoid(z) * widen(u.values[k]));
    }
    store_pack(out + i, g);
  }
}

// With s = sigmoid(gate): dgate = dy · up · s (1 + gate (1 - s)), dup = dy · gate · s; and y once more, where it is
// not null.
template <class T, int N>
__global__ void backward_rows(const T* gate_up, const T* dy, T* dgate_up, T* y, int64_t intermediate) {
  const T* gate = gate_up + int64_t{blockIdx.x} * 2 * intermediate;
  const T* grad = dy + int64_t{blockIdx.x} * intermediate;
  T* out = dgate_up + int64_t{blockIdx.x} * 2 * intermediate;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < intermediate;
       i += int64_t{gridDim.y} * blockDim.x * N) {
    Pack<T, N> g = load_pack<T, N>(gate + i), u = load_pack<T, N>(gate + intermediate + i);
    Pack<T, N> d = load_pack<T, N>(grad + i);
    for (int k = 0; k < N; ++k) {
      const float z = widen(g.values[k]), s = sigmoid(z), dk = widen(d.values[k]), uk = widen(u.values[k]);
      g.values[k] = narrow<T>(dk * uk * s * (1 + z * (1 - s)));
      u.values[k] = narrow<T>(dk * z * s);
      d.values[k] = narrow<T>(z * s * uk);
    }
    store_pack(out + i, g);
    store_pack(out + intermediate + i, u);
    if (y != nullptr) store_pack(y + int64_t{blockIdx.x} * intermediate + i, d);
  }
}

dim3 grid_of(int64_t rows, int64_t intermediate, int lanes) {
  const int64_t parts = (intermediate + int64_t{kThreads} * lanes - 1) / (int64_t{kThreads} * lanes);
  return {static_cast<unsigned>(rows), static_cast<unsigned>(std::min<int64_t>(parts, 64))};
}

// Calls f.template operator()<T, lanes>() with whole packs where rows allow it.
template <class F>
void visit(const Tensor& gate_up, F&& f) {
  visit_wide_or_brain(gate_up.dtype(), [&]<class T>() {
    gate_up.dim(1) / 2 % kLanes<T> == 0 ? f.template operator()<T, kLanes<T>>() : f.template operator()<T, 1>();
  });
}

Tensor forward(const Swiglu& given) {
  const Swiglu op{aligned(given.gate_up)};
  const int64_t rows = op.gate_up.dim(0), intermediate = op.gate_up.dim(1) / 2;
  const Tensor y =
      Tensor::empty({rows, intermediate}, op.gate_up.dtype(), MemoryTag::kActivations, op.gate_up.device());
  if (y.numel() == 0) return y;
  visit(op.gate_up, [&]<class T, int N>() {
    forward_rows<T, N><<<grid_of(rows, intermediate, N), kThreads, 0, device::stream(y.device())>>>(
        static_cast<const T*>(op.gate_up.raw()), static_cast<T*>(y.raw()), intermediate);
  });
  device::check_launch("swiglu");
  return y;
}

Tensor backward(const Swiglu& given, const Tensor& given_dy, const Tensor& y) {
  const Swiglu op{aligned(given.gate_up)};
  const Tensor dy = aligned(given_dy);
  const int64_t rows = op.gate_up.dim(0), intermediate = op.gate_up.dim(1) / 2;
  const Tensor dx = Tensor::empty(op.gate_up.shape(), op.gate_up.dtype(), MemoryTag::kActivations, dy.device());
  if (dx.numel() == 0) return dx;
  visit(op.gate_up, [&]<class T, int N>() {
    backward_rows<T, N><<<grid_of(rows, intermediate, N), kThreads, 0, device::stream(dy.device())>>>(
        static_cast<const T*>(op.gate_up.raw()), static_cast<const T*>(dy.raw()), static_cast<T*>(dx.raw()),
        y.defined() ? static_cast<T*>(y.raw()) : nullptr, intermediate);
  });
  device::check_launch("swiglu backward");
  return dx;
}

}  // namespace

ops::Kernel<Swiglu> cuda_swiglu_kernel() {
  return {.hardware = hardware::kGpu,
          .accepts = refuse_float16<Swiglu::Signature>,
          .forward = forward,
          .backward = backward};
}

}  // namespace temper::backends
