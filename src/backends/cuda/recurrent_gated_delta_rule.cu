// A step of decoding: states pass by once. A block has some values of one sequence and head; its threads keep their
// part of the state in registers between what is read from it and what it becomes.
#include "backends/cuda/cuda.h"
#include "backends/gpu/device_code.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"

namespace temper::backends {
namespace {

using ops::RecurrentGatedDeltaRule;

constexpr int kSliceValues = 32, kQuads = kSliceValues / 4, kGroups = kThreads / kQuads, kMostKeys = 256;
constexpr int kEach = kMostKeys / kGroups;  // keys of a thread, kGroups apart

template <class T>
struct Arguments {
  const T *q, *k, *v;
  const float *g, *beta;
  const int* slots;  // null: in order
  float* state;
  T* y;
  int64_t q_stride, k_stride, v_stride;
  int key_heads, heads, key_dim, value_dim;
  float scale, eps;
  bool norms;
};

struct Shared {
  float q[kMostKeys], k[kMostKeys];
  float4 sums[kThreads / 32][kQuads];
  float reduce[32];
};

// 1 / |row|, or 1.
template <class T>
__device__ float load_normed(float* to, const T* from, const Arguments<T>& a, Shared& s) {
  const int i = threadIdx.x;
  const float own = i < a.key_dim ? widen(from[i]) : 0.f;
  to[i] = own;
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

template <class T>
__global__ void __launch_bounds__(kThreads) step(const __grid_constant__ Arguments<T> a) {
  __shared__ Shared s;
  const int head = blockIdx.y, key_head = head / (a.heads / a.key_heads);
  const int64_t sequence = blockIdx.x, row = sequence * a.heads + head;
  const int value = static_cast<int>(blockIdx.z * kSliceValues + threadIdx.x % kQuads * 4),
            group = static_cast<int>(threadIdx.x) / kQuads;
  const int64_t slot = a.slots == nullptr ? sequence : a.slots[sequence];
  float* const state = a.state + (slot * a.heads + head) * a.key_dim * a.value_dim + value;
  const bool there = value < a.value_dim;
  float4 own[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int key = group + i * kGroups;
    own[i] = there && key < a.key_dim ? *reinterpret_cast<const float4*>(state + int64_t{key} * a.value_dim) : float4{};
  }
  const float q_norm = load_normed(s.q, a.q + sequence * a.q_stride + key_head * a.key_dim, a, s),
              k_norm = load_normed(s.k, a.k + sequence * a.k_stride + key_head * a.key_dim, a, s),
              decay = expf(a.g[row]), beta = a.beta[row];
  float4 known{};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    own[i] = {decay * own[i].x, decay * own[i].y, decay * own[i].z, decay * own[i].w};
    add(known, k_norm * s.k[group + i * kGroups], own[i]);
  }
  known = over_keys(known, s);
  const T* const v = a.v + sequence * a.v_stride + int64_t{head} * a.value_dim + value;
  float4 u{};
  if (there) u = {beta * (widen(v[0]) - known.x), beta * (widen(v[1]) - known.y), beta * (widen(v[2]) - known.z),
                  beta * (widen(v[3]) - known.w)};
  float4 y{};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int key = group + i * kGroups;
    add(own[i], k_norm * s.k[key], u);
    add(y, a.scale * q_norm * s.q[key], own[i]);
    if (there && key < a.key_dim) *reinterpret_cast<float4*>(state + int64_t{key} * a.value_dim) = own[i];
  }
  y = over_keys(y, s);
  if (!there || group != 0) return;
  T* const to = a.y + row * a.value_dim + value;
  const float values[4] = {y.x, y.y, y.z, y.w};
  for (int i = 0; i < 4; ++i) to[i] = narrow<T>(values[i]);
}

// Heads of a sequence one behind the other.
Tensor with_heads(const Tensor& x) { return x.stride(2) == 1 && x.stride(1) == x.dim(2) ? x : x.clone(); }

Tensor forward(const RecurrentGatedDeltaRule& op) {
  const Device device = op.q.device();
  const Tensor y = Tensor::empty(op.v.shape(), op.v.dtype(), MemoryTag::kActivations, device);
  if (y.numel() == 0) return y;
  const Tensor q = with_heads(op.q), k = with_heads(op.k), v = with_heads(op.v);
  visit_wide_or_brain(op.q.dtype(), [&]<class T>() {
    const auto at = [](const Tensor& x) { return static_cast<const T*>(x.raw()); };
    const Arguments<T> arguments{.q = at(q),
                                 .k = at(k),
                                 .v = at(v),
                                 .g = op.g.data<float>(),
                                 .beta = op.beta.data<float>(),
                                 .slots = op.slots.defined() ? op.slots.data<int32_t>() : nullptr,
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
    const dim3 blocks(static_cast<unsigned>(v.dim(0)), static_cast<unsigned>(v.dim(1)),
                      static_cast<unsigned>((v.dim(2) + kSliceValues - 1) / kSliceValues));
    step<T><<<blocks, kThreads, 0, device::stream(device)>>>(arguments);
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
