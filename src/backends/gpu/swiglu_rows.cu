#include "backends/gpu/swiglu_rows.h"

#include "backends/gpu/device_code.h"
#include "backends/gpu/swiglu_element.h"

namespace temper::backends {
namespace {

// One block a row (or a part of it): gate and up of the same element lie `intermediate` apart.
template <class Act, class T, int N>
__global__ void forward_rows(const T* gate_up, T* y, int64_t intermediate) {
  const T* gate = gate_up + int64_t{blockIdx.x} * 2 * intermediate;
  T* out = y + int64_t{blockIdx.x} * intermediate;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < intermediate;
       i += int64_t{gridDim.y} * blockDim.x * N) {
    Pack<T, N> g = load_pack<T, N>(gate + i);
    const Pack<T, N> u = load_pack<T, N>(gate + intermediate + i);
    for (int k = 0; k < N; ++k) g.values[k] = narrow<T>(Act::forward(widen(g.values[k]), widen(u.values[k])));
    store_pack(out + i, g);
  }
}

// And y once more, where it is not null.
template <class Act, class T, int N>
__global__ void backward_rows(const T* gate_up, const T* dy, T* dgate_up, T* y, int64_t intermediate) {
  const T* gate = gate_up + int64_t{blockIdx.x} * 2 * intermediate;
  const T* grad = dy + int64_t{blockIdx.x} * intermediate;
  T* out = dgate_up + int64_t{blockIdx.x} * 2 * intermediate;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; i < intermediate;
       i += int64_t{gridDim.y} * blockDim.x * N) {
    Pack<T, N> g = load_pack<T, N>(gate + i), u = load_pack<T, N>(gate + intermediate + i);
    Pack<T, N> d = load_pack<T, N>(grad + i);
    for (int k = 0; k < N; ++k) {
      const SwigluBackward one =
          Act::backward(widen(g.values[k]), widen(u.values[k]), widen(d.values[k]));
      g.values[k] = narrow<T>(one.dgate);
      u.values[k] = narrow<T>(one.dup);
      d.values[k] = narrow<T>(one.y);
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

// Calls f.template operator()<activation, T, lanes>() with whole packs where rows allow it.
template <class F>
void visit(const Tensor& gate_up, ops::Activation activation, F&& f) {
  const auto lanes = [&]<class Act, class T>() {
    gate_up.dim(1) / 2 % kLanes<T> == 0 ? f.template operator()<Act, T, kLanes<T>>()
                                        : f.template operator()<Act, T, 1>();
  };
  visit_wide_or_brain(gate_up.dtype(), [&]<class T>() {
    activation == ops::Activation::kSilu ? lanes.template operator()<Silu, T>()
                                         : lanes.template operator()<GeluTanh, T>();
  });
}

}  // namespace

void write_swiglu(const Tensor& given, const Tensor& y, ops::Activation activation) {
  const Tensor gate_up = aligned(given);
  if (y.numel() == 0) return;
  const int64_t rows = y.dim(0), intermediate = y.dim(1);
  visit(gate_up, activation, [&]<class Act, class T, int N>() {
    forward_rows<Act, T, N><<<grid_of(rows, intermediate, N), kThreads, 0, device::stream(y.device())>>>(
        static_cast<const T*>(gate_up.raw()), static_cast<T*>(y.raw()), intermediate);
  });
  device::check_launch("swiglu");
}

void write_swiglu_backward(const Tensor& given, const Tensor& given_dy, const Tensor& dgate_up,
                           const Tensor& y, ops::Activation activation) {
  const Tensor gate_up = aligned(given), dy = aligned(given_dy);
  if (dy.numel() == 0) return;
  const int64_t rows = dy.dim(0), intermediate = dy.dim(1);
  visit(gate_up, activation, [&]<class Act, class T, int N>() {
    backward_rows<Act, T, N><<<grid_of(rows, intermediate, N), kThreads, 0, device::stream(dy.device())>>>(
        static_cast<const T*>(gate_up.raw()), static_cast<const T*>(dy.raw()), static_cast<T*>(dgate_up.raw()),
        y.defined() ? static_cast<T*>(y.raw()) : nullptr, intermediate);
  });
  device::check_launch("swiglu backward");
}

}  // namespace temper::backends
