#pragma once
#include "backends/cublaslt/softmax_rows.h"
#include "backends/gpu/device_code.h"

// The arithmetic of one row of logits, which all kernels for softmax_rows share.
namespace temper::backends {

inline constexpr float kLn2 = 0.6931471805599453f;

// The largest of some logits, and the sum of all exp(logit - largest).
struct Running {
  float largest, sum;

  // The sum relative to a larger maximum. An empty sum stays 0.
  __device__ float rescaled_to(float larger) const {
    return largest == -INFINITY ? 0.f : sum * power_of_2((largest - larger) * kLog2E);
  }
};

__device__ inline Running nothing() { return {-INFINITY, 0}; }

__device__ inline Running merge_warp(const Running& mine) {
  const float largest = warp_max(mine.largest);
  return {largest, warp_sum(mine.rescaled_to(largest))};
}

// Of up to 32, by every warp for itself.
__device__ inline Running merge(const Running* all, unsigned count) {
  const unsigned lane = threadIdx.x % 32;
  return merge_warp(lane < count ? all[lane] : nothing());
}

template <class T, int N>
__device__ float largest_of(const Pack<T, N>& pack) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const auto* pairs = reinterpret_cast<const Pair*>(pack.values);
    Pair largest = pairs[0];
    for (int i = 1; i < N / 2; ++i) largest = __hmax2(largest, pairs[i]);
    return fmaxf(widen(largest.x), widen(largest.y));
  } else {
    float largest = widen(pack.values[0]);
    for (int i = 1; i < N; ++i) largest = fmaxf(largest, widen(pack.values[i]));
    return largest;
  }
}

// The largest of a pack first: one rescaling for all of it. Differences of logits before the factor: a
// vocabulary of one has no loss.
template <class T, int N>
__device__ void add_pack(Running& mine, const Pack<T, N>& pack) {
  const float largest = fmaxf(mine.largest, largest_of(pack));
  const float base = largest == -INFINITY ? 0.f : largest;  // or differences of infinities were NaN
  float values[N], sum = mine.rescaled_to(largest);
  widen_all(pack, values);
  for (int i = 0; i < N; ++i) sum += power_of_2((values[i] - base) * kLog2E);
  mine = {largest, sum};
}

template <class T>
struct SoftmaxArguments {
  T* logits;
  const int* targets;
  const int* places;
  int64_t first;
  float* nll;
  float* z;                    // null without z_loss
  const float* token_factors;  // null: all 1
  int64_t vocab;
  const float* scale;
  float z_loss;
  bool differentiate;

  __device__ int64_t place_of(int64_t row) const { return places == nullptr ? first + row : places[row]; }
  __device__ float scale_of(int64_t row) const {
    return token_factors == nullptr ? *scale : *scale * token_factors[place_of(row)];
  }
};

template <class T>
SoftmaxArguments<T> arguments_of(const SoftmaxRows& op) {
  return {static_cast<T*>(op.logits.raw()),
          op.targets.data<int32_t>(),
          op.places.defined() ? op.places.data<int32_t>() : nullptr,
          op.first,
          op.nll.data<float>(),
          op.z.defined() ? op.z.data<float>() : nullptr,
          op.token_factors.defined() ? op.token_factors.data<float>() : nullptr,
          op.logits.dim(1),
          op.scale.data<float>(),
          op.z_loss,
          op.differentiate};
}

// A row of which all logits were seen.
struct SeenRow {
  float largest, log_sum;    // log_sum: to the base of 2, of the sum of all exp(logit - largest)
  float lse, z, normalized;  // lse to the base of 2; the gradient of the row's lse is normalized · softmax

  template <class T>
  __device__ SeenRow(const SoftmaxArguments<T>& a, const Running& all)
      : largest(all.largest),
        log_sum(log2f(all.sum)),
        lse(largest * kLog2E + log_sum),
        z(a.z_loss * lse * kLn2),
        normalized(1 + 2 * z) {}

  template <class T>
  __device__ void store_losses(const SoftmaxArguments<T>& a, int64_t row, float chosen) const {
    const int64_t place = a.place_of(row);
    a.nll[place] = log_sum * kLn2 + (largest - chosen);
    if (a.z != nullptr) a.z[place] = z * lse * kLn2;
  }
  __device__ float softmax(float logit) const { return power_of_2(logit * kLog2E - lse) * normalized; }
  // In place, as if none of them were the target; that one is the caller's to correct.
  template <class T, int N>
  __device__ void differentiate(Pack<T, N>& pack, float scale) const {
    const float factor = normalized * scale;
    float values[N];
    widen_all(pack, values);
    for (int k = 0; k < N; ++k) pack.values[k] = narrow<T>(power_of_2(values[k] * kLog2E - lse) * factor);
  }
  template <class T>
  __device__ T of_target(float chosen, float scale) const {
    return narrow<T>((softmax(chosen) - 1) * scale);
  }
};

inline constexpr int kRowThreads = 512;
inline constexpr int kAhead = 4;  // packs a thread loads before it uses the first

// By a block of kRowThreads: calls body(pack, at) for every pack of a row from `begin` to `end`, several
// loads ahead.
template <class T, int N, class Body>
__device__ void for_each_pack(const T* from, int64_t begin, int64_t end, Body body) {
  constexpr int64_t kStep = int64_t{kRowThreads} * N;
  int64_t i = begin + int64_t{threadIdx.x} * N;
  for (; i + (kAhead - 1) * kStep < end; i += kAhead * kStep) {
    Pack<T, N> packs[kAhead];
    for (int p = 0; p < kAhead; ++p) packs[p] = load_pack<T, N>(from + i + p * kStep);
    for (int p = 0; p < kAhead; ++p) body(packs[p], i + p * kStep);
  }
  for (; i < end; i += kStep) body(load_pack<T, N>(from + i), i);
}

// The gradient of a row without a target, which is padding: `count` logits, by one block.
template <class T, int N>
__device__ void store_zeros(T* logits, int64_t count) {
  for (int64_t i = int64_t{threadIdx.x} * N; i < count; i += int64_t{blockDim.x} * N)
    store_pack(logits + i, Pack<T, N>{});
}

// Rows that a cluster of blocks can hold in its shared memory, each logit read and written once. False: this
// row is not of that kind (its length, or the GPU: clusters came with compute capability 9.0).
bool softmax_by_clusters(const SoftmaxRows& op);

}  // namespace temper::backends
