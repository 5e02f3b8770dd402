// Swiglu of experts' rows, each with its choice's weight. A warp has a row.
#include "backends/cuda/experts/expert_products.h"
#include "backends/gpu/device_code.h"
#include "backends/gpu/swiglu_element.h"

namespace temper::backends {
namespace {

__device__ int64_t row_of_warp() { return global_thread() / 32; }

template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_rows(const int* choices, int64_t rows, const T* gate_up, const float* weights, T* y, int64_t width) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const float weight = weights[choices[row]];
  const T *gate = gate_up + row * 2 * width, *up = gate + width;
  for (int64_t i = threadIdx.x % 32; i < width; i += 32)
    y[row * width + i] = narrow<T>(weight * swiglu(widen(gate[i]), widen(up[i])));
}

// y and dweights may be null.
template <class T>
struct Backward {
  const T* gate_up;
  const float* weights;
  const T* dy;
  T *dgate_up, *y;
  float* dweights;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_rows(const int* choices, int64_t rows, Backward<T> tensors, int64_t width) {
  const auto [gate_up, weights, dy, dgate_up, y, dweights] = tensors;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const float weight = weights[choices[row]];
  const int64_t at = row * 2 * width;
  float dot = 0;
  for (int64_t i = threadIdx.x % 32; i < width; i += 32) {
    const float gradient = widen(dy[row * width + i]);
    const SwigluBackward one =
        swiglu_backward(widen(gate_up[at + i]), widen(gate_up[at + width + i]), weight * gradient);
    dgate_up[at + i] = narrow<T>(one.dgate);
    dgate_up[at + width + i] = narrow<T>(one.dup);
    if (y != nullptr) y[row * width + i] = narrow<T>(weight * one.y);
    dot += gradient * one.y;
  }
  dot = warp_sum(dot);
  if (dweights != nullptr && threadIdx.x % 32 == 0) dweights[choices[row]] = dot;
}

unsigned blocks_of(int64_t rows) {
  constexpr int64_t kRows = kThreads / 32;
  return static_cast<unsigned>((rows + kRows - 1) / kRows);
}

}  // namespace

void weighted_swiglu(const ExpertPlan& plan, const Tensor& gate_up, const Tensor& weights, const Tensor& y) {
  if (y.numel() == 0 || only_counts(y.device())) return;
  visit_device_float(y.dtype(), [&]<class T>() {
    forward_rows<<<blocks_of(plan.rows), kThreads, 0, device::stream(y.device())>>>(
        plan.choices(), plan.rows, static_cast<const T*>(gate_up.raw()), weights.data<float>(),
        static_cast<T*>(y.raw()), y.dim(1));
  });
  device::check_launch("swiglu of experts");
}

void weighted_swiglu_backward(const ExpertPlan& plan, const Tensor& gate_up, const Tensor& weights, const Tensor& dy,
                              const Tensor& dgate_up, const Tensor& y, const Tensor& dweights) {
  if (dy.numel() == 0 || only_counts(dy.device())) return;
  visit_device_float(dy.dtype(), [&]<class T>() {
    const Backward<T> tensors{static_cast<const T*>(gate_up.raw()), weights.data<float>(),
                              static_cast<const T*>(dy.raw()), static_cast<T*>(dgate_up.raw()),
                              y.defined() ? static_cast<T*>(y.raw()) : nullptr,
                              dweights.defined() ? dweights.data<float>() : nullptr};
    backward_rows<<<blocks_of(plan.rows), kThreads, 0, device::stream(dy.device())>>>(plan.choices(), plan.rows,
                                                                                      tensors, dy.dim(1));
  });
  device::check_launch("swiglu of experts, backward");
}

}  // namespace temper::backends
