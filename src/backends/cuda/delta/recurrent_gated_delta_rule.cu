// States pass by once. A block has some values of one sequence and head, and its threads have parts of the state in
// registers. What is read of a token after its step is a sum over what was known before it:
//   y = q' (e^g S + k u') = q' e^g S + (q' k) u',   u = beta (v - k' e^g S)
// so that threads meet once for each token.
#include "backends/gpu/device_code.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "tensor/host_inputs.h"

namespace temper::backends {
namespace {

using ops::RecurrentGatedDeltaRule;

constexpr int kSliceValues = 32, kQuads = kSliceValues / 4, kMostKeys = 256;
constexpr int kWarps = 4, kBlock = 32 * kWarps;
constexpr int kGroups = kBlock / kQuads;  // of threads that have the same keys
constexpr int kTile = kWarps;             // tokens that are read at once, by a warp each

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

using Partial = float4[kWarps][kQuads];  // of a sum over all keys, what each warp has

// Some tokens: keys and queries with their norms and the scale. Keys that a head does not have are 0.
template <int kKeys>
struct Tile {
  float q[kTile][kKeys], k[kTile][kKeys], v[kTile][kSliceValues];
  float decay[kTile], beta[kTile], product[kTile];  // q' k
};

// While one tile passes by, the next is written; of sums, those of the token before may still be read.
template <int kKeys>
struct Shared {
  Tile<kKeys> tiles[2];
  Partial known[2], read[2];
};

__device__ void add(float4& sum, float factor, const float4& value) {
  sum.x += factor * value.x;
  sum.y += factor * value.y;
  sum.z += factor * value.z;
  sum.w += factor * value.w;
}

__device__ void share_sum(Partial& to, float4 sum) {
  for (int step = kQuads; step < 32; step *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
    sum.z += __shfl_xor_sync(0xffffffffu, sum.z, step);
    sum.w += __shfl_xor_sync(0xffffffffu, sum.w, step);
  }
  if (threadIdx.x % 32 < kQuads) to[threadIdx.x / 32][threadIdx.x % kQuads] = sum;
}
__device__ float4 whole(const Partial& from) {
  float4 sum{};
  for (const auto& warp : from) add(sum, 1, warp[threadIdx.x % kQuads]);
  return sum;
}

template <class T>
__device__ void store_row(T* to, const float4& values) {
  to[0] = narrow<T>(values.x);
  to[1] = narrow<T>(values.y);
  to[2] = narrow<T>(values.z);
  to[3] = narrow<T>(values.w);
}

// What a lane has of its warp's token of a tile.
template <class T, int kKeys>
struct Ahead {
  static constexpr int kOwn = kKeys / 32;
  float q[kOwn] = {}, k[kOwn] = {}, v = 0, decay = 0, beta = 0;

  __device__ void read(const Arguments<T>& a, int64_t token, int head) {
    const int lane = threadIdx.x % 32, key_head = head / (a.heads / a.key_heads);
    const T *q_row = a.q + token * a.q_stride + key_head * a.key_dim,
            *k_row = a.k + token * a.k_stride + key_head * a.key_dim;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int key = i * 32 + lane;
      if (key >= a.key_dim) break;
      q[i] = widen(q_row[key]);
      k[i] = widen(k_row[key]);
    }
    const int value = static_cast<int>(blockIdx.z) * kSliceValues + lane;
    if (value < a.value_dim) v = widen(a.v[token * a.v_stride + int64_t{head} * a.value_dim + value]);
    decay = a.g[token * a.heads + head];
    beta = a.beta[token * a.heads + head];
  }
  __device__ void share(const Arguments<T>& a, Tile<kKeys>& to) const {
    const int lane = threadIdx.x % 32, place = threadIdx.x / 32;
    float q_squares = 0, k_squares = 0, product = 0;
    for (int i = 0; i < kOwn; ++i) {
      q_squares += q[i] * q[i];
      k_squares += k[i] * k[i];
      product += q[i] * k[i];
    }
    q_squares = warp_sum(q_squares), k_squares = warp_sum(k_squares), product = warp_sum(product);
    const float q_scale = a.scale * (a.norms ? 1 / sqrtf(q_squares + a.eps) : 1.f),
                k_norm = a.norms ? 1 / sqrtf(k_squares + a.eps) : 1.f;
    for (int i = 0; i < kOwn; ++i) {
      to.q[place][i * 32 + lane] = q_scale * q[i];
      to.k[place][i * 32 + lane] = k_norm * k[i];
    }
    to.v[place][lane] = v;
    if (lane != 0) return;
    to.decay[place] = expf(decay);
    to.beta[place] = beta;
    to.product[place] = q_scale * k_norm * product;
  }
};

// A thread's part of the state: some keys, side by side, of four values.
template <int kKeys>
struct States {
  static constexpr int kOwn = kKeys / kGroups;
  float4 own[kOwn] = {};

  static __device__ int first_key() { return static_cast<int>(threadIdx.x) / kQuads * kOwn; }
  // Calls f for each part that exists, with its place in `states`.
  template <class T, class F>
  __device__ void for_each(const Arguments<T>& a, float* states, F f) {
    const int value = static_cast<int>(blockIdx.z * kSliceValues + threadIdx.x % kQuads * 4),
              first = first_key();
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (value < a.value_dim && first + i < a.key_dim)
        f(own[i], *reinterpret_cast<float4*>(states + int64_t{first + i} * a.value_dim + value));
  }
  // What is known of the token's key, and what its query reads of that.
  __device__ void look(const Tile<kKeys>& tile, int place, Partial& known, Partial& read) {
    float4 of_key{}, of_query{};
    const float decay = tile.decay[place];
    const int first = first_key();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      own[i] = {decay * own[i].x, decay * own[i].y, decay * own[i].z, decay * own[i].w};
      add(of_key, tile.k[place][first + i], own[i]);
      add(of_query, tile.q[place][first + i], own[i]);
    }
    share_sum(known, of_key);
    share_sum(read, of_query);
  }
  __device__ void learn(const Tile<kKeys>& tile, int place, const float4& update) {
    const int first = first_key();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) add(own[i], tile.k[place][first + i], update);
  }
};

// Of sequences that continue another, or of those that do not.
template <class T, int kKeys>
__global__ void __launch_bounds__(kBlock, kKeys > 128 ? 3 : 6) step(const __grid_constant__ Arguments<T> a, bool continuing) {
  __shared__ Shared<kKeys> s;
  const int head = blockIdx.y, value = static_cast<int>(blockIdx.z * kSliceValues + threadIdx.x % kQuads * 4);
  const int64_t sequence = blockIdx.x, warp = threadIdx.x / 32;
  const int before = a.continued == nullptr ? -1 : a.continued[sequence];
  if ((before >= 0) != continuing) return;
  const int64_t slot = a.slots == nullptr ? sequence : a.slots[sequence];
  const int64_t first = a.starts == nullptr ? sequence : a.starts[sequence],
                end = a.starts == nullptr ? sequence + 1 : a.starts[sequence + 1];
  Ahead<T, kKeys> ahead;
  if (first + warp < end) ahead.read(a, first + warp, head);
  States<kKeys> states;
  states.for_each(a, a.state_of(continuing ? before : slot, head),
                  [](float4& its, const float4& values) { its = values; });
  ahead.share(a, s.tiles[0]);
  __syncthreads();
  for (int64_t token = first; token < end; ++token) {
    const auto at = static_cast<int>(token - first), place = at % kTile;
    const Tile<kKeys>& tile = s.tiles[at / kTile % 2];
    if (place == 0 && token + kTile + warp < end) ahead.read(a, token + kTile + warp, head);
    states.look(tile, place, s.known[at % 2], s.read[at % 2]);
    if (place == kTile - 1) ahead.share(a, s.tiles[(at / kTile + 1) % 2]);
    __syncthreads();
    const float4 known = whole(s.known[at % 2]);
    const float* v = tile.v[place] + threadIdx.x % kQuads * 4;
    const float beta = tile.beta[place];
    const float4 update{beta * (v[0] - known.x), beta * (v[1] - known.y), beta * (v[2] - known.z),
                        beta * (v[3] - known.w)};
    states.learn(tile, place, update);
    if (threadIdx.x < kQuads && value < a.value_dim) {
      float4 y = whole(s.read[at % 2]);
      add(y, tile.product[place], update);
      store_row(a.y + (token * a.heads + head) * a.value_dim + value, y);
    }
  }
  states.for_each(a, a.state_of(slot, head), [](const float4& its, float4& values) { values = its; });
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
    const auto launch = [&](bool continuing) {
      const auto kernel = arguments.key_dim <= kMostKeys / 2 ? step<T, kMostKeys / 2> : step<T, kMostKeys>;
      kernel<<<blocks, kBlock, 0, device::stream(device)>>>(arguments, continuing);
    };
    launch(false);
    if (continued.defined()) launch(true);
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

void register_cuda_recurrent_gated_delta_rule() {
  ops::kernels<RecurrentGatedDeltaRule>().add(
      "cuda",
      {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .batch_invariant = true, .repeats = true});
}

}  // namespace temper::backends
