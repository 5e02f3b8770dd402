#include "backends/floats.h"
#include "backends/gpu/wide_packs.h"
#include "ops/causal_conv1d/causal_conv1d.h"

namespace temper::backends {
namespace {

using ops::CausalConv1dUpdate;

template <class T>
struct Arguments {
  const T *x, *weight;
  const int* slots;  // null: in order
  T *windows, *y;
  int64_t x_stride, size;
  int channels, width;
};

// One token of each sequence, whose window moves on.
template <class T>
__global__ void __launch_bounds__(kThreads) update(const __grid_constant__ Arguments<T> a) {
  for (int64_t i = global_thread(); i < a.size; i += grid_threads()) {
    const int64_t sequence = i / a.channels, channel = i % a.channels;
    const int64_t slot = a.slots == nullptr ? sequence : a.slots[sequence];
    T* const window = a.windows + slot * (a.width - 1) * a.channels + channel;
    const T* const weight = a.weight + channel * a.width;
    const T own = a.x[sequence * a.x_stride + channel];
    float sum = 0;
    for (int j = 0; j + 1 < a.width; ++j) {
      const T before = window[int64_t{j} * a.channels];
      sum += widen(before) * widen(weight[j]);
      window[int64_t{j} * a.channels] = j + 2 < a.width ? window[int64_t{j + 1} * a.channels] : own;
    }
    sum += widen(own) * widen(weight[a.width - 1]);
    a.y[i] = narrow<T>(sum * logistic(sum));
  }
}

Tensor forward(const CausalConv1dUpdate& op) {
  const Device device = op.x.device();
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, device),
               x = op.x.stride(1) == 1 ? op.x : op.x.clone();
  if (y.numel() == 0) return y;
  visit_wide_or_brain(op.x.dtype(), [&]<class T>() {
    const Arguments<T> arguments{.x = static_cast<const T*>(x.raw()),
                                 .weight = static_cast<const T*>(op.weight.raw()),
                                 .slots = op.slots.defined() ? op.slots.data<int32_t>() : nullptr,
                                 .windows = static_cast<T*>(op.window.raw()),
                                 .y = static_cast<T*>(y.raw()),
                                 .x_stride = x.stride(0),
                                 .size = y.numel(),
                                 .channels = static_cast<int>(op.x.dim(1)),
                                 .width = static_cast<int>(op.weight.dim(1))};
    update<T><<<blocks_for(y.numel()), kThreads, 0, device::stream(device)>>>(arguments);
  });
  device::check_launch("causal_conv1d_update");
  return y;
}

}  // namespace

void register_cuda_causal_conv1d_update() {
  ops::kernels<CausalConv1dUpdate>().add(
      "cuda",
      {.hardware = hardware::kGpu, .accepts = refuse_float16, .forward = forward, .batch_invariant = true, .repeats = true});
}

}  // namespace temper::backends
