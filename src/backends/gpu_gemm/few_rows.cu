#include "backends/gpu_gemm/few_rows.h"

#include "backends/gpu/float8.h"
#include "backends/gpu/dependent_launch.h"

namespace temper::backends {
namespace {

using ops::Linear;

constexpr int kMostRows = 4;
constexpr int kInFlight = 64;  // bytes of the weight that a thread asks for at once

// W is T, or uint8_t: codes.
template <class T, class W>
struct Arguments {
  const T* x;
  const W* weight;
  const float* scales;  // of codes
  const T* bias;
  T* y;
  int64_t inner, outer, x_stride;
  int rows;
};

template <int N>
__device__ inline void widen_weights(const Pack<uint8_t, N>& codes, float (&values)[N]) {
  const auto* twos = reinterpret_cast<const uint16_t*>(codes.values);
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float2 two = decode(twos[i / 2]);
    values[i] = two.x;
    values[i + 1] = two.y;
  }
}
template <class T, int N>
__device__ inline void widen_weights(const Pack<T, N>& weights, float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = widen(weights.values[i]);
}

// Codes come in packs as many as those of T: a thread has the same elements, whose sums have the same order.
template <class T, class W, int R>
__global__ void __launch_bounds__(kThreads) multiply_rows(Arguments<T, W> a) {
  constexpr int N = kLanes<T>, kPacks = kInFlight / static_cast<int>(N * sizeof(W));
  wait_for_inputs();
  const int64_t out = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (out >= a.outer) return;
  const W* weight = a.weight + out * a.inner;
  float sums[R] = {};
  const auto add = [&](const Pack<W, N>& pack, int64_t i) {
    float w[N];
    widen_weights(pack, w);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r >= a.rows) continue;
      const Pack<T, N> x = load_pack<T, N>(a.x + r * a.x_stride + i);
#pragma unroll
      for (int k = 0; k < N; ++k) sums[r] += w[k] * widen(x.values[k]);
    }
  };
  constexpr int64_t kStep = 32 * N;
  int64_t i = threadIdx.x % 32 * N;
  for (; i + (kPacks - 1) * kStep < a.inner; i += kPacks * kStep) {
    Pack<W, N> packs[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) packs[p] = load_once<W, N>(weight + i + p * kStep);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) add(packs[p], i + p * kStep);
  }
  for (; i < a.inner; i += kStep) add(load_once<W, N>(weight + i), i);
  // A power of two: the sum of scaled codes would have the same bits.
  const float scale = a.scales == nullptr ? 1.f : a.scales[out];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float sum = warp_sum(sums[r]) * scale;
    if (threadIdx.x % 32 == 0 && r < a.rows)
      a.y[r * a.outer + out] = narrow<T>(sum + (a.bias == nullptr ? 0.f : widen(a.bias[out])));
  }
}

template <class T, class W>
void launch(const Linear& op, const Tensor& y) {
  const int64_t outer = op.weight.dim(0), warps = kThreads / 32;
  const auto rows = static_cast<int>(op.x.dim(0));
  const Arguments<T, W> arguments{static_cast<const T*>(op.x.raw()),
                                  static_cast<const W*>(op.weight.raw()),
                                  op.scales.defined() ? op.scales.data<float>() : nullptr,
                                  op.bias.defined() ? static_cast<const T*>(op.bias.raw()) : nullptr,
                                  static_cast<T*>(y.raw()),
                                  op.x.dim(1),
                                  outer,
                                  op.x.stride(0),
                                  rows};
  const auto kernel = rows == 1   ? multiply_rows<T, W, 1>
                      : rows == 2 ? multiply_rows<T, W, 2>
                                  : multiply_rows<T, W, kMostRows>;
  DependentLaunch{"linear of a few rows", y.device(), static_cast<unsigned>((outer + warps - 1) / warps), kThreads}(kernel, arguments);
}

}  // namespace

bool are_few_rows(const Tensor& x, const Tensor& weight) {
  const int64_t rows = x.dim(0), size = size_of(x.dtype());
  return rows >= 1 && rows <= kMostRows && x.dtype() != DType::kF16 && x.dim(1) * size % 16 == 0 &&
         x.stride(0) * size % 16 == 0 && is_aligned(x) && weight.is_contiguous() && is_aligned(weight);
}

Tensor few_rows(const Linear& op) {
  const Tensor y =
      Tensor::empty({op.x.dim(0), op.weight.dim(0)}, op.x.dtype(), MemoryTag::kActivations, op.x.device());
  if (y.numel() == 0) return y;
  visit_wide_or_brain(
      y.dtype(), [&]<class T>() { op.scales.defined() ? launch<T, uint8_t>(op, y) : launch<T, T>(op, y); });
  return y;
}

}  // namespace temper::backends
