// One query a sequence against its cache: keys and values are read once for all query heads that share them. The
// positions of a sequence are cut into splits, one block each; the last block of a sequence's head to finish merges
// them, always in their order, so that results repeat.
#include <map>
#include <mutex>

#include "backends/gpu/dependent_launch.h"
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"

namespace temper::backends {
namespace {

using ops::DecodeAttention;

constexpr int kWarps = 8;
constexpr int kAtOnce = 4;          // keys whose loads are in flight together
constexpr int kMostHeads = 8;       // query heads of a block
constexpr int kFewBlocks = 32;      // of all sequences, before positions are cut: too few
constexpr int kLargestHead = 256;
constexpr int kMostSplits = 64;
constexpr int kMinSplit = 64;       // positions that are worth a block of their own
constexpr int kWantedBlocks = 264;  // fixed, so that sums do not depend on the GPU
constexpr int kCounters = 1 << 16;
constexpr float kNothing = -1e30f;  // below every score, and finite

template <class T>
struct Arguments {
  const T *q, *k, *v;
  T *keys, *values, *y;
  const int* lengths;
  float* partial;      // [sequences, blocks of heads, splits, heads, head_dim + 2]
  unsigned* finished;  // [sequences, blocks of heads], zero before and after
  int64_t k_stride, v_stride;
  int heads, kv_heads, dim, capacity, splits, window;
  float scale;  // with log2(e): scores are powers of two
};

// The softmax of some positions for one head: weights' sum relative to the largest score.
struct Running {
  float largest, sum;
};

__device__ inline float power(float score, float largest) { return exp2f(score - largest); }

// What all splits of some heads give together, by the block that was last: its `used` rows of `all` to `out`.
template <class T, int H>
__device__ void merge_splits(const Arguments<T>& a, const float* all, T* out, int used, int count) {
  __shared__ float factors[H][kMostSplits];
  const int width = a.dim + 2, warp = threadIdx.x / 32;
  for (int h = warp; h < count; h += kWarps) {
    Running own[kMostSplits / 32];
    float largest = kNothing, sum = 0;
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      const int k = threadIdx.x % 32 + 32 * i;
      const float* const row = all + (k * H + h) * width;
      own[i] = k < used ? Running{__ldcg(row), __ldcg(row + 1)} : Running{kNothing, 0};
      largest = fmaxf(largest, own[i].largest);
    }
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      own[i].largest = power(own[i].largest, largest);
      sum += own[i].largest * own[i].sum;
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) factors[h][threadIdx.x % 32 + 32 * i] = own[i].largest / sum;
  }
  __syncthreads();
  for (int item = threadIdx.x; item < count * a.dim; item += blockDim.x) {
    const int h = item / a.dim, i = item % a.dim;
    float value = 0;
#pragma unroll 8
    for (int k = 0; k < used; ++k) value += factors[h][k] * __ldcg(all + (k * H + h) * width + 2 + i);
    out[h * a.dim + i] = narrow<T>(value);
  }
}

// A block: one sequence, one key head with up to H of its query heads, one split. A group of kGroup lanes reads one
// key in P packs of N elements a lane.
template <class T, int N, int P, int kGroup, int H>
__global__ void __launch_bounds__(kWarps * 32) attend(Arguments<T> a) {
  constexpr int kGroupsPerWarp = 32 / kGroup, kGroups = kWarps * kGroupsPerWarp;
  wait_for_inputs();
  const int sequence = blockIdx.z, split = blockIdx.x;
  const int group_heads = a.heads / a.kv_heads, parts = (group_heads + H - 1) / H;
  const int kv_head = blockIdx.y / parts, part = blockIdx.y % parts;
  const int first_head = kv_head * group_heads + part * H, count = min(H, group_heads - part * H);
  const int lane = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
  const int64_t step = int64_t{a.kv_heads} * a.dim;
  const int64_t cache = int64_t{sequence} * a.capacity * step + int64_t{kv_head} * a.dim;
  const T* new_k = a.k + sequence * a.k_stride + int64_t{kv_head} * a.dim;
  const T* new_v = a.v + sequence * a.v_stride + int64_t{kv_head} * a.dim;

  int at[P];  // elements of the head that this lane holds
  bool active[P];
  for (int p = 0; p < P; ++p) {
    at[p] = (p * kGroup + lane) * N;
    active[p] = at[p] < a.dim;
  }
  float q[H][P * N], y[H][P * N] = {};
  Running state[H];
#pragma unroll
  for (int h = 0; h < H; ++h) {
    state[h] = {kNothing, 0};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      Pack<T, N> pack{};
      if (h < count && active[p])
        pack = load_pack<T, N>(a.q + (int64_t{sequence} * a.heads + first_head + h) * a.dim + at[p]);
#pragma unroll
      for (int i = 0; i < N; ++i) q[h][p * N + i] = a.scale * widen(pack.values[i]);
    }
  }

  const int length = a.lengths[sequence], total = length + 1;
  const int first_of_all = a.window > 0 ? max(0, total - a.window) : 0;
  const int seen = total - first_of_all;
  const int size = max((seen + a.splits - 1) / a.splits, kMinSplit), used = (seen + size - 1) / size;
  if (length < 0 || length >= a.capacity || split >= used) return;
  const int begin = first_of_all + split * size, end = min(begin + size, total);

  // Whole warps go round together: shuffles need every lane of a group.
  for (int base = begin; base < end; base += kGroups * kAtOnce) {
    Pack<T, N> keys[kAtOnce][P], values[kAtOnce][P];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int position = base + u * kGroups + group;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        keys[u][p] = {};
        values[u][p] = {};
        if (position >= end || !active[p]) continue;
        // The new token comes from its own place.
        const int64_t place = cache + position * step;
        keys[u][p] = load_pack<T, N>((position == length ? new_k : a.keys + place) + at[p]);
        values[u][p] = load_pack<T, N>((position == length ? new_v : a.values + place) + at[p]);
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      // Once, by the split that the new token belongs to.
      const int position = base + u * kGroups + group;
      if (position != length || position >= end || part != 0) continue;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!active[p]) continue;
        const int64_t place = cache + length * step + at[p];
        store_pack(a.keys + place, keys[u][p]);
        store_pack(a.values + place, values[u][p]);
      }
    }
    float scores[H][kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const bool there = base + u * kGroups + group < end;
#pragma unroll
      for (int h = 0; h < H; ++h) {
        float dot = 0;
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
          for (int i = 0; i < N; ++i) dot += q[h][p * N + i] * widen(keys[u][p].values[i]);
#pragma unroll
        for (int other = kGroup / 2; other > 0; other /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, other);
        scores[h][u] = there ? dot : kNothing;
      }
    }
#pragma unroll
    for (int h = 0; h < H; ++h) {
      float largest = state[h].largest;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) largest = fmaxf(largest, scores[h][u]);
      const float shrink = power(state[h].largest, largest);
      state[h] = {largest, state[h].sum * shrink};
#pragma unroll
      for (int i = 0; i < P * N; ++i) y[h][i] *= shrink;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const bool there = base + u * kGroups + group < end;
        const float weight = there ? power(scores[h][u], largest) : 0.f;
        state[h].sum += weight;
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
          for (int i = 0; i < N; ++i) y[h][p * N + i] += weight * widen(values[u][p].values[i]);
      }
    }
  }

  // The groups of a warp, then the warps, become one.
  extern __shared__ float shared[];  // [warps, heads, dim + 2]
  const int width = a.dim + 2, warp = threadIdx.x / 32;
#pragma unroll
  for (int h = 0; h < H; ++h) {
#pragma unroll
    for (int other = kGroup; other < 32; other *= 2) {
      const float largest = fmaxf(state[h].largest, __shfl_xor_sync(0xffffffffu, state[h].largest, other));
      const float mine = power(state[h].largest, largest);
      state[h].sum *= mine;
      state[h].sum += __shfl_xor_sync(0xffffffffu, state[h].sum, other);
      state[h].largest = largest;
#pragma unroll
      for (int i = 0; i < P * N; ++i) {
        y[h][i] *= mine;
        y[h][i] += __shfl_xor_sync(0xffffffffu, y[h][i], other);
      }
    }
    if (threadIdx.x % 32 >= kGroup) continue;
    float* row = shared + (warp * H + h) * width;
    if (lane == 0) {
      row[0] = state[h].largest;
      row[1] = state[h].sum;
    }
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (active[p])
#pragma unroll
        for (int i = 0; i < N; ++i) row[2 + at[p] + i] = y[h][p * N + i];
  }
  __syncthreads();

  const auto of_warps = [&](int h, int i) {
    float largest = kNothing, sum = 0, value = 0;
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, shared[(w * H + h) * width]);
    for (int w = 0; w < kWarps; ++w) {
      const float* row = shared + (w * H + h) * width;
      const float factor = power(row[0], largest);
      sum += factor * row[1];
      value += factor * row[2 + i];
    }
    return float3{largest, sum, value};
  };
  const int64_t slot = int64_t{sequence} * gridDim.y + blockIdx.y;
  float* mine = a.partial + (slot * a.splits + split) * H * width;
  T* out = a.y + (int64_t{sequence} * a.heads + first_head) * a.dim;
  for (int item = threadIdx.x; item < count * a.dim; item += blockDim.x) {
    const int h = item / a.dim, i = item % a.dim;
    const float3 all = of_warps(h, i);
    if (used == 1) {
      out[h * a.dim + i] = narrow<T>(all.z / all.y);
      continue;
    }
    if (i == 0) {
      mine[h * width] = all.x;
      mine[h * width + 1] = all.y;
    }
    mine[h * width + 2 + i] = all.z;
  }
  if (used == 1) return;
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {  // for all, as they met before and meet after it
    __threadfence();
    last = atomicAdd(a.finished + slot, 1u) == static_cast<unsigned>(used - 1);
    __threadfence();
    if (last) a.finished[slot] = 0;
  }
  __syncthreads();
  if (!last) return;
  merge_splits<T, H>(a, a.partial + slot * a.splits * H * width, out, used, count);
}

// Counts of finished blocks, 0 between launches: the last block of each count clears it. No thread waits for a
// count. Each stream has counters of its own, and runs the launches that use them in order.
unsigned* counters(Device device) {
  // Never destroyed: the driver may be gone when static objects go.
  static auto& all = *new std::map<std::pair<int, int>, Tensor>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Tensor& found = all[{device.index, device::streams(device.index).current()}];
  if (!found.defined()) found = Tensor::zeros({kCounters}, DType::kI32, MemoryTag::kData, device);
  return static_cast<unsigned*>(found.raw());
}

// Calls f.template operator()<N, P, group>(): lanes that hold a head, in packs where heads are whole packs. Few models
// have other heads, or narrow ones: those have lanes without work instead of kernels of their own.
template <class T, class F>
void visit_group(int dim, F&& f) {
  constexpr int N = kLanes<T>;
  if (dim % N != 0) return f.template operator()<1, 2, 32>();
  const int packs = dim / N;
  if (packs <= 8) return f.template operator()<N, 1, 8>();
  if (packs <= 16) return f.template operator()<N, 1, 16>();
  if (packs <= 32) return f.template operator()<N, 1, 32>();
  if constexpr (N * 32 < kLargestHead) return f.template operator()<N, 2, 32>();
}

template <class F>
void visit_heads(int64_t heads, F&& f) {
  if (heads == 1) return f.template operator()<1>();
  if (heads == 2) return f.template operator()<2>();
  if (heads <= 4) return f.template operator()<4>();
  f.template operator()<kMostHeads>();
}

int64_t blocks_of(int64_t kv_heads, int64_t group, int64_t heads) {
  return kv_heads * ((group + heads - 1) / heads);
}

// Query heads of a block; `group`: of a key's head. Few blocks have less to do each and share keys in the L2 cache.
int64_t heads_of_block(int64_t sequences, int64_t kv_heads, int64_t group) {
  int64_t heads = std::min<int64_t>(group, kMostHeads);
  while (heads > 1 && sequences * blocks_of(kv_heads, group, heads) < kFewBlocks) heads /= 2;
  return heads;
}

// Packs of 16 bytes, where a sequence's heads begin anywhere.
Tensor readable(const Tensor& tensor) {
  return tensor.stride(0) * size_of(tensor.dtype()) % 16 == 0 ? aligned(tensor) : tensor.clone();
}

Tensor forward(const DecodeAttention& op) {
  const Device device = op.q.device();
  const int64_t sequences = op.q.dim(0), heads = op.q.dim(1), dim = op.q.dim(2), kv_heads = op.k.dim(1);
  const Tensor y = Tensor::empty(op.q.shape(), op.q.dtype(), MemoryTag::kActivations, device);
  if (y.numel() == 0) return y;
  const Tensor q = aligned(op.q), k = readable(op.k), v = readable(op.v);
  visit_wide_or_brain(op.q.dtype(), [&]<class T>() {
    visit_heads(heads_of_block(sequences, kv_heads, heads / kv_heads), [&]<int H>() {
      const int64_t blocks = blocks_of(kv_heads, heads / kv_heads, H);
      invariant(sequences * blocks <= kCounters, "too many sequences for one launch of decode_attention");
      const int64_t splits = std::clamp<int64_t>(kWantedBlocks / (blocks * sequences), 1, kMostSplits);
      const Tensor partial = Tensor::empty({sequences * blocks * splits * H, dim + 2}, DType::kF32,
                                           MemoryTag::kWorkspace, device);
      const auto at = [](const Tensor& tensor) { return static_cast<T*>(tensor.raw()); };
      const Arguments<T> arguments{at(q),
                                   at(k),
                                   at(v),
                                   at(op.keys),
                                   at(op.values),
                                   at(y),
                                   op.lengths.data<int32_t>(),
                                   partial.data<float>(),
                                   counters(device),
                                   k.stride(0),
                                   v.stride(0),
                                   static_cast<int>(heads),
                                   static_cast<int>(kv_heads),
                                   static_cast<int>(dim),
                                   static_cast<int>(op.keys.dim(1)),
                                   static_cast<int>(splits),
                                   static_cast<int>(op.window),
                                   op.scale * 1.4426950408889634f};
      visit_group<T>(static_cast<int>(dim), [&]<int N, int P, int kGroup>() {
        const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(blocks),
                        static_cast<unsigned>(sequences));
        const auto shared = static_cast<size_t>(kWarps * H * (dim + 2)) * sizeof(float);
        allow_scratch(attend<T, N, P, kGroup, H>, shared);
        DependentLaunch{"decode_attention", device, grid, kWarps * 32, shared}(attend<T, N, P, kGroup, H>, arguments);
      });
    });
  });
  return y;
}

ops::Refusal accepts(const DecodeAttention::Signature& s, const HardwareFacts&) {
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  if (s.sinks) return ops::refuse_sinks(s.sinks);
  const int64_t lanes = 16 / size_of(s.dtype), most = s.head_dim % lanes == 0 ? kLargestHead : 64;
  if (s.head_dim > most)
    return fmt::format("head_dim must be at most {}{}, is {}", most,
                       most == 64 ? fmt::format(" where it is no multiple of {}", lanes) : "", s.head_dim);
  return std::nullopt;
}

}  // namespace

void register_cuda_decode_attention() {
  ops::kernels<DecodeAttention>().add("cuda", {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward});
}

}  // namespace temper::backends
