// Steps of decoding: states pass by once. A block has some values of one sequence and head; its threads keep their
// part of the state in registers between what is read from it and what it becomes.
#include "backends/cuda/cuda.h"
#include "backends/gpu/device_code.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "tensor/host_inputs.h"

namespace temper::backends {
namespace {

using ops::RecurrentGatedDeltaRule;

constexpr int kSliceValues = 32, kQuads = kSliceValues / 4, kGroups = kThreads / kQuads, kMostKeys = 256;
constexpr int kEach = kMostKeys / kGroups;  // keys of a thread, kGroups apart

template <class T>
struct Arguments {
  const T *q, *k, *v;
  const float *g, *beta;
  const int* slots;      // null: in order
  const int* starts;     // of the sequences' tokens; null: one each
  const int* continued;  // of each the one before it whose final state it begins with, or -1; null: none does
  float* state;
  T* y;
  int64_t q_stride, k_stride, v_stride;
  int key_heads, heads, key_dim, value_dim;
  float scale, eps;
  bool norms;

  __device__ float* state_of(int64_t slot, int head) const {
    return state + (slot * heads + head) * key_dim * value_dim;
  }
};

struct Shared {
  float q[kMostKeys], k[kMostKeys];
  float4 sums[kThreads / 32][kQuads];
  float reduce[32];
};

// 1 / |row|, or 1; a thread has one element of the row.
template <class T>
__device__ float share_normed(float* to, float own, const Arguments<T>& a, Shared& s) {
  to[threadIdx.x] = own;
  const float squares = block_sum(own * own, s.reduce);
  __syncthreads();
  return a.norms ? 1 / sqrtf(squares + a.eps) : 1.f;
}

__device__ void add(float4& sum, float factor, const float4& value) {
  sum.x += factor * value.x;
  sum.y += factor * value.y;
  sum.z += factor * value.z;
  sum.w += factor * value.w;
}
// The sum over all keys, in the threads of every group.
__device__ float4 over_keys(float4 sum, Shared& s) {
  for (int step = kQuads; step < 32; step *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
    sum.z += __shfl_xor_sync(0xffffffffu, sum.z, step);
    sum.w += __shfl_xor_sync(0xffffffffu, sum.w, step);
  }
  const int quad = threadIdx.x % kQuads;
  __syncthreads();
  if (threadIdx.x % 32 < kQuads) s.sums[threadIdx.x / 32][quad] = sum;
  __syncthreads();
  float4 whole{};
  for (const auto& warp : s.sums) add(whole, 1, warp[quad]);
  return whole;
}

// What a thread reads of a token, before it is needed.
template <class T>
struct Token {
  float q = 0, k = 0, v[4] = {}, decay = 0, beta = 0;

  Token() = default;
  __device__ Token(const Arguments<T>& a, int64_t token, int key_head, int head, int value) {
    const int i = threadIdx.x;
    if (i < a.key_dim) {
      q = widen(a.q[token * a.q_stride + key_head * a.key_dim + i]);
      k = widen(a.k[token * a.k_stride + key_head * a.key_dim + i]);
    }
    if (value < a.value_dim)
      for (int j = 0; j < 4; ++j) v[j] = widen(a.v[token * a.v_stride + int64_t{head} * a.value_dim + value + j]);
    decay = expf(a.g[token * a.heads + head]);
    beta = a.beta[token * a.heads + head];
  }
};

// Of sequences that continue another, or of those that do not.
template <class T>
__global__ void __launch_bounds__(kThreads) step(const __grid_constant__ Arguments<T> a, bool continuing) {
  __shared__ Shared s;
  const int head = blockIdx.y, key_head = head / (a.heads / a.key_heads);
  const int64_t sequence = blockIdx.x;
  const int before = a.continued == nullptr ? -1 : a.continued[sequence];
  if ((before >= 0) != continuing) return;
  const int value = static_cast<int>(blockIdx.z * kSliceValues + threadIdx.x % kQuads * 4),
            group = static_cast<int>(threadIdx.x) / kQuads;
  const int64_t slot = a.slots == nullptr ? sequence : a.slots[sequence];
  const bool there = value < a.value_dim;
  float4 own[kEach];
  const auto for_keys = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) f(own[i], group + i * kGroups);
  };
  // Where a state has a key's values, which are copied if they are there.
  const auto copy = [&](float* state, int key, auto f) {
    if (there && key < a.key_dim) f(*reinterpret_cast<float4*>(state + int64_t{key} * a.value_dim + value));
  };
  float *const from = a.state_of(continuing ? before : slot, head), *const to = a.state_of(slot, head);
  for_keys([&](float4& its, int key) {
    its = {};
    copy(from, key, [&](const float4& values) { its = values; });
  });
  const int64_t first = a.starts == nullptr ? sequence : a.starts[sequence],
                end = a.starts == nullptr ? sequence + 1 : a.starts[sequence + 1];
  if (first == end && !continuing) return;
  Token<T> next;
  if (first < end) next = Token<T>(a, first, key_head, head, value);
  for (int64_t token = first; token < end; ++token) {
    const Token<T> now = next;
    if (token + 1 < end) next = Token<T>(a, token + 1, key_head, head, value);
    __syncthreads();  // all are done with the token before
    const float q_norm = share_normed(s.q, now.q, a, s), k_norm = share_normed(s.k, now.k, a, s),
                decay = now.decay;
    float4 known{};
    for_keys([&](float4& its, int key) {
      its = {decay * its.x, decay * its.y, decay * its.z, decay * its.w};
      add(known, k_norm * s.k[key], its);
    });
    known = over_keys(known, s);
    float4 u{};
    if (there)
      u = {now.beta * (now.v[0] - known.x), now.beta * (now.v[1] - known.y), now.beta * (now.v[2] - known.z),
           now.beta * (now.v[3] - known.w)};
    float4 y{};
    for_keys([&](float4& its, int key) {
      add(its, k_norm * s.k[key], u);
      add(y, a.scale * q_norm * s.q[key], its);
    });
    y = over_keys(y, s);
    if (!there || group != 0) continue;
    T* const row = a.y + (token * a.heads + head) * a.value_dim + value;
    const float values[4] = {y.x, y.y, y.z, y.w};
    for (int i = 0; i < 4; ++i) row[i] = narrow<T>(values[i]);
  }
  for_keys([&](const float4& its, int key) { copy(to, key, [&](float4& values) { values = its; }); });
}

// Heads of a sequence one behind the other.
Tensor with_heads(const Tensor& x) { return x.stride(2) == 1 && x.stride(1) == x.dim(2) ? x : x.clone(); }

Tensor forward(const RecurrentGatedDeltaRule& op) {
  const Device device = op.q.device();
  const Tensor y = Tensor::empty(op.v.shape(), op.v.dtype(), MemoryTag::kActivations, device);
  if (y.numel() == 0) return y;
  const Tensor q = with_heads(op.q), k = with_heads(op.k), v = with_heads(op.v);
  const auto brought = [&](const Tensor& list) { return list.defined() ? from_host(list, device) : list; };
  const Tensor starts = brought(op.documents.starts), continued = brought(op.documents.continued);
  const auto ints_of = [](const Tensor& list) { return list.defined() ? list.data<int32_t>() : nullptr; };
  visit_wide_or_brain(op.q.dtype(), [&]<class T>() {
    const auto at = [](const Tensor& x) { return static_cast<const T*>(x.raw()); };
    const Arguments<T> arguments{.q = at(q),
                                 .k = at(k),
                                 .v = at(v),
                                 .g = op.g.data<float>(),
                                 .beta = op.beta.data<float>(),
                                 .slots = ints_of(op.slots),
                                 .starts = ints_of(starts),
                                 .continued = ints_of(continued),
                                 .state = op.state.data<float>(),
                                 .y = static_cast<T*>(y.raw()),
                                 .q_stride = q.stride(0),
                                 .k_stride = k.stride(0),
                                 .v_stride = v.stride(0),
                                 .key_heads = static_cast<int>(q.dim(1)),
                                 .heads = static_cast<int>(v.dim(1)),
                                 .key_dim = static_cast<int>(q.dim(2)),
                                 .value_dim = static_cast<int>(v.dim(2)),
                                 .scale = op.scale,
                                 .eps = op.eps,
                                 .norms = op.norms};
    const dim3 blocks(static_cast<unsigned>(op.sequences()), static_cast<unsigned>(v.dim(1)),
                      static_cast<unsigned>((v.dim(2) + kSliceValues - 1) / kSliceValues));
    step<T><<<blocks, kThreads, 0, device::stream(device)>>>(arguments, false);
    if (continued.defined()) step<T><<<blocks, kThreads, 0, device::stream(device)>>>(arguments, true);
  });
  device::check_launch("recurrent_gated_delta_rule");
  return y;
}

ops::Refusal accepts(const RecurrentGatedDeltaRule::Signature& s, const HardwareFacts&) {
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  if (s.key_dim > kMostKeys) return fmt::format("key heads must be at most {} wide, are {}", kMostKeys, s.key_dim);
  if (s.value_dim % 4 != 0) return fmt::format("value heads must be a multiple of 4 wide, are {}", s.value_dim);
  return std::nullopt;
}

}  // namespace

ops::Kernel<RecurrentGatedDeltaRule> cuda_recurrent_gated_delta_rule_kernel() {
  return {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .batch_invariant = true, .repeats = true};
}

}  // namespace temper::backends
