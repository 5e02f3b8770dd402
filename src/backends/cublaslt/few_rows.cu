#include "backends/cublaslt/few_rows.h"

#include "backends/gpu.h"

namespace temper::backends {
namespace {

using ops::Linear;

constexpr int64_t kMostRows = 4;
constexpr int kInFlight = 4;  // packs of the weight that a thread asks for at once

template <class T>
struct Arguments {
  const T *x, *weight, *bias;
  T* y;
  int64_t inner, outer, x_stride;
  int rows;
};

template <class T, int R>
__global__ void __launch_bounds__(kThreads) multiply_rows(Arguments<T> a) {
  constexpr int N = kLanes<T>;
  const int64_t out = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (out >= a.outer) return;
  const T* weight = a.weight + out * a.inner;
  float sums[R] = {};
  const auto add = [&](const Pack<T, N>& w, int64_t i) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r >= a.rows) continue;
      const Pack<T, N> x = load_pack<T, N>(a.x + r * a.x_stride + i);
#pragma unroll
      for (int k = 0; k < N; ++k) sums[r] += widen(w.values[k]) * widen(x.values[k]);
    }
  };
  constexpr int64_t kStep = 32 * N;
  int64_t i = threadIdx.x % 32 * N;
  for (; i + (kInFlight - 1) * kStep < a.inner; i += kInFlight * kStep) {
    Pack<T, N> packs[kInFlight];
#pragma unroll
    for (int p = 0; p < kInFlight; ++p) packs[p] = load_once<T, N>(weight + i + p * kStep);
#pragma unroll
    for (int p = 0; p < kInFlight; ++p) add(packs[p], i + p * kStep);
  }
  for (; i < a.inner; i += kStep) add(load_once<T, N>(weight + i), i);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float sum = warp_sum(sums[r]);
    if (threadIdx.x % 32 == 0 && r < a.rows)
      a.y[r * a.outer + out] = narrow<T>(sum + (a.bias == nullptr ? 0.f : widen(a.bias[out])));
  }
}

}  // namespace

bool are_few_rows(const Linear& op) {
  const int64_t rows = op.x.dim(0), size = size_of(op.x.dtype());
  return rows >= 1 && rows <= kMostRows && op.x.dtype() != DType::kF16 && op.x.dim(1) * size % 16 == 0 &&
         op.x.stride(0) * size % 16 == 0 && is_aligned(op.x) && op.weight.is_contiguous() && is_aligned(op.weight);
}

Tensor few_rows(const Linear& op) {
  const int64_t rows = op.x.dim(0), outer = op.weight.dim(0);
  const Device device = op.x.device();
  const Tensor y = Tensor::empty({rows, outer}, op.x.dtype(), MemoryTag::kActivations, device);
  if (y.numel() == 0) return y;
  visit_wide_or_brain(y.dtype(), [&]<class T>() {
    const auto at = [](const Tensor& tensor) { return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr; };
    const Arguments<T> arguments{at(op.x), at(op.weight), at(op.bias), at(y),
                                 op.x.dim(1), outer, op.x.stride(0), static_cast<int>(rows)};
    const auto launch = [&]<int R>() {
      const int64_t warps = kThreads / 32, blocks = (outer + warps - 1) / warps;
      multiply_rows<T, R>
          <<<static_cast<unsigned>(blocks), kThreads, 0, device::stream(device)>>>(arguments);
    };
    if (rows == 1)
      launch.template operator()<1>();
    else if (rows == 2)
      launch.template operator()<2>();
    else
      launch.template operator()<kMostRows>();
  });
  device::check_launch("linear of a few rows");
  return y;
}

}  // namespace temper::backends
