// A block passes once over a row of logits: each thread keeps the largest that it has met and the sums relative to it,
// which are merged in a fixed order.
#include "backends/floats.h"
#include "backends/gpu/wide_packs.h"
#include "ops/token_log_probs/token_log_probs.h"

namespace temper::backends {
namespace {

using ops::TokenLogProbs;

constexpr float kNothing = -1e30f;  // below every logit, and finite

// Of some logits x: the largest, Σ exp(x - largest), and Σ exp(x - largest) (x - largest).
struct Sums {
  float largest = kNothing, powers = 0, weighted = 0;

  __device__ void move_to(float to) {
    const float distance = largest - to, factor = __expf(distance);
    weighted = factor * (weighted + distance * powers);
    powers *= factor;
    largest = to;
  }
  __device__ void add(const Sums& other) {
    Sums there = other;
    const float to = fmaxf(largest, there.largest);
    move_to(to);
    there.move_to(to);
    powers += there.powers;
    weighted += there.weighted;
  }
  __device__ Sums from_lane(int distance) const {
    return {__shfl_down_sync(0xffffffffu, largest, distance), __shfl_down_sync(0xffffffffu, powers, distance),
            __shfl_down_sync(0xffffffffu, weighted, distance)};
  }
};

// Packs of a thread that are on their way at once.
constexpr int kAhead = 4;

// Logits are multiplied by `scale`, 1 / temperature.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) reduce_rows(const T* logits, const int* ids, int64_t vocab, float scale,
                                                        float* log_probs, float* entropies, float* log_sums) {
  const T* const row = logits + blockIdx.x * vocab;
  Sums sums;
  const auto add = [&](const Pack<T, N>& pack) {
    float x[N];
    widen_all(pack, x);
    float most = sums.largest;
#pragma unroll
    for (float& each : x) {
      each *= scale;
      most = fmaxf(most, each);
    }
    if (most > sums.largest) sums.move_to(most);
#pragma unroll
    for (const float each : x) {
      const float distance = each - sums.largest, power = __expf(distance);
      sums.powers += power;
      sums.weighted += power > 0 ? power * distance : power;  // NaN stays
    }
  };
  int64_t i = threadIdx.x * N;
  for (; i + (kAhead - 1) * kThreads * N < vocab; i += kAhead * kThreads * N) {
    Pack<T, N> packs[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) packs[k] = load_pack<T, N>(row + i + k * kThreads * N);
#pragma unroll
    for (const Pack<T, N>& pack : packs) add(pack);
  }
  for (; i < vocab; i += kThreads * N) add(load_pack<T, N>(row + i));
  __shared__ Sums of_warps[kThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) sums.add(sums.from_lane(lanes));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kThreads / 32; ++w) sums.add(of_warps[w]);
  const float log_powers = logf(sums.powers);
  log_probs[blockIdx.x] = widen(row[ids[blockIdx.x]]) * scale - sums.largest - log_powers;
  log_sums[blockIdx.x] = sums.largest + log_powers;
  if (entropies != nullptr) entropies[blockIdx.x] = log_powers - sums.weighted / sums.powers;
}

// Of each row, [tokens]; gradients are null where they are zero.
struct RowValues {
  const int* ids;
  const float *entropies, *log_sums, *d_log_probs, *d_entropies;
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    differentiate_rows(const T* logits, const __grid_constant__ RowValues values, int64_t first, int64_t vocab,
                       float scale, T* dlogits) {
  const int64_t row = first + blockIdx.y;
  const int id = values.ids[row];
  const float log_sum = values.log_sums[row], of_chosen = values.d_log_probs == nullptr ? 0 : values.d_log_probs[row];
  const bool learns_entropy = values.d_entropies != nullptr;
  const float of_entropy = learns_entropy ? values.d_entropies[row] : 0;
  const float entropy = learns_entropy ? values.entropies[row] : 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N; i < vocab; i += int64_t{gridDim.x} * kThreads * N) {
    float x[N], dx[N];
    widen_all(load_pack<T, N>(logits + row * vocab + i), x);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float log_prob = x[k] * scale - log_sum, prob = __expf(log_prob);
      const float surprise = prob > 0 ? prob * (log_prob + entropy) : prob;
      dx[k] = scale * ((i + k == id ? of_chosen : 0.f) - of_chosen * prob - of_entropy * surprise);
    }
    store_narrow(dlogits + row * vocab + i, dx);
  }
}

float scale_of(const TokenLogProbs& op) { return static_cast<float>(1 / op.temperature); }

// Calls f.template operator()<T, N>(), with packs where rows are whole ones.
template <class F>
void visit_packs(const Tensor& logits, F&& f) {
  visit_wide_or_brain(logits.dtype(), [&]<class T>() {
    if (logits.dim(1) % kLanes<T> == 0 && is_aligned(logits)) return f.template operator()<T, kLanes<T>>();
    f.template operator()<T, 1>();
  });
}

TokenLogProbs::Output forward(const TokenLogProbs& op) {
  const Device device = op.logits.device();
  const int64_t rows = op.logits.dim(0), vocab = op.logits.dim(1);
  const auto each = [&] { return Tensor::empty({rows}, DType::kF32, MemoryTag::kActivations, device); };
  const bool entropies = op.entropies_wanted != TokenLogProbs::Entropies::kNone;
  const TokenLogProbs::Output out{each(), entropies ? each() : Tensor(), each()};
  if (rows == 0) return out;
  visit_packs(op.logits, [&]<class T, int N>() {
    reduce_rows<T, N><<<static_cast<unsigned>(rows), kThreads, 0, device::stream(device)>>>(
        static_cast<const T*>(op.logits.raw()), op.ids.data<int32_t>(), vocab, scale_of(op), out.log_probs.data<float>(),
        entropies ? out.entropies.data<float>() : nullptr, out.log_sums.data<float>());
  });
  device::check_launch("token_log_probs");
  return out;
}

Tensor backward(const TokenLogProbs& op, const TokenLogProbs::Output& out, const Tensor& d_log_probs,
                const Tensor& d_entropies) {
  const Device device = op.logits.device();
  const int64_t rows = op.logits.dim(0), vocab = op.logits.dim(1);
  const Tensor dlogits = Tensor::empty(op.logits.shape(), op.logits.dtype(), MemoryTag::kActivations, device);
  if (rows == 0) return dlogits;
  const auto floats = [](const Tensor& tensor) { return tensor.defined() ? tensor.data<float>() : nullptr; };
  visit_packs(op.logits, [&]<class T, int N>() {
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(vocab / (kThreads * N * 4), 1, 64));
    constexpr int64_t kMostRows = 65535;
    const RowValues values{op.ids.data<int32_t>(), floats(out.entropies), floats(out.log_sums), floats(d_log_probs),
                           floats(d_entropies)};
    for (int64_t first = 0; first < rows; first += kMostRows) {
      const dim3 grid(blocks, static_cast<unsigned>(std::min(rows - first, kMostRows)));
      differentiate_rows<T, N><<<grid, kThreads, 0, device::stream(device)>>>(
          static_cast<const T*>(op.logits.raw()), values, first, vocab, scale_of(op), static_cast<T*>(dlogits.raw()));
    }
  });
  device::check_launch("the gradient of token_log_probs");
  return dlogits;
}

}  // namespace

void register_cuda_token_log_probs() {
  ops::kernels<TokenLogProbs>().add("cuda", {.hardware = hardware::kGpu,
                                             .accepts = refuse_float16,
                                             .forward = forward,
                                             .backward = backward,
                                             .batch_invariant = true});
}

}  // namespace temper::backends
