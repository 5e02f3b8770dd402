#pragma once
#include "backends/gpu/dependent_launch.h"
#include "backends/gpu/device_code.h"

// One query a sequence in float32 against its pages (paged_float32.cu): keys and values are read once for all
// query heads that share them. The positions of a sequence are cut into splits, one block each; the last
// block of a sequence's head to finish merges them, always in their order, so that results repeat.
namespace temper::backends::paged_float32 {

inline constexpr int kWarps = 8;
inline constexpr int kAtOnce = 4;  // keys whose loads are in flight together
inline constexpr int kMostSplits = 64;
inline constexpr int kMinSplit = 64;       // positions that are worth a block of their own
inline constexpr float kNothing = -1e30f;  // below every score, and finite

struct Rows {
  const float* data;
  int64_t stride;
};

struct Pages {
  const int *held, *tables;  // [sequences], and [sequences, width]
  int tokens, shift, width;  // of a page; tokens = 1 << shift, or -1

  // Of a token among all tokens of all pages.
  __device__ int64_t place_of(int sequence, int token) const {
    const int page = shift < 0 ? token / tokens : token >> shift;
    return int64_t{__ldg(tables + int64_t{sequence} * width + page)} * tokens + (token - page * tokens);
  }
};

struct Arguments {
  Rows q, k, v;
  float *keys, *values, *y;
  Pages pages;
  float* partial;      // [sequences, blocks of heads, splits, heads, head_dim + 2]
  unsigned* finished;  // [sequences, blocks of heads], zero before and after
  int heads, kv_heads, dim, splits, window;
  float scale;  // with log2(e): scores are powers of two
};

// The softmax of some positions for one head: weights' sum relative to the largest score.
struct Running {
  float largest, sum;
};

__device__ inline float power(float score, float largest) { return exp2f(score - largest); }

// What all splits of some heads give together, by the block that was last: its `used` rows of `all` to `out`.
template <int H>
__device__ void merge_splits(const Arguments& a, const float* all, float* out, int used, int count) {
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
    out[h * a.dim + i] = value;
  }
}

// A block: one sequence, one key head with up to H of its query heads, one split. A group of kGroup lanes
// reads one key in P packs of N elements a lane.
template <int N, int P, int kGroup, int H>
__global__ void __launch_bounds__(kWarps * 32) attend(const __grid_constant__ Arguments a) {
  constexpr int kGroupsPerWarp = 32 / kGroup, kGroups = kWarps * kGroupsPerWarp;
  wait_for_inputs();
  const int sequence = blockIdx.z, split = blockIdx.x;
  const int group_heads = a.heads / a.kv_heads, parts = (group_heads + H - 1) / H;
  const int kv_head = blockIdx.y / parts, part = blockIdx.y % parts;
  const int first_head = kv_head * group_heads + part * H, count = min(H, group_heads - part * H);
  const int lane = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
  const int64_t step = int64_t{a.kv_heads} * a.dim, own_head = int64_t{kv_head} * a.dim;
  const float* new_k = a.k.data + sequence * a.k.stride + own_head;
  const float* new_v = a.v.data + sequence * a.v.stride + own_head;

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
      Pack<float, N> pack{};
      if (h < count && active[p])
        pack =
            load_pack<float, N>(a.q.data + sequence * a.q.stride + int64_t{first_head + h} * a.dim + at[p]);
#pragma unroll
      for (int i = 0; i < N; ++i) q[h][p * N + i] = a.scale * pack.values[i];
    }
  }

  const int length = a.pages.held[sequence], total = length + 1;
  const int first_of_all = a.window > 0 ? max(0, total - a.window) : 0;
  const int seen = total - first_of_all;
  const int size = max((seen + a.splits - 1) / a.splits, kMinSplit), used = (seen + size - 1) / size;
  if (length < 0 || length >= a.pages.width * a.pages.tokens || split >= used) return;
  const int begin = first_of_all + split * size, end = min(begin + size, total);

  // Whole warps go round together: shuffles need every lane of a group.
  for (int base = begin; base < end; base += kGroups * kAtOnce) {
    Pack<float, N> keys[kAtOnce][P], values[kAtOnce][P];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int position = base + u * kGroups + group;
      const int64_t place = position < end ? a.pages.place_of(sequence, position) * step + own_head : 0;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        keys[u][p] = {};
        values[u][p] = {};
        if (position >= end || !active[p]) continue;
        // The new token comes from its own place.
        keys[u][p] = load_pack<float, N>((position == length ? new_k : a.keys + place) + at[p]);
        values[u][p] = load_pack<float, N>((position == length ? new_v : a.values + place) + at[p]);
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      // Once, by the split that the new token belongs to.
      const int position = base + u * kGroups + group;
      if (position != length || position >= end || part != 0) continue;
      const int64_t place = a.pages.place_of(sequence, length) * step + own_head;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!active[p]) continue;
        store_pack(a.keys + place + at[p], keys[u][p]);
        store_pack(a.values + place + at[p], values[u][p]);
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
          for (int i = 0; i < N; ++i) dot += q[h][p * N + i] * keys[u][p].values[i];
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
          for (int i = 0; i < N; ++i) y[h][p * N + i] += weight * values[u][p].values[i];
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
  float* out = a.y + (int64_t{sequence} * a.heads + first_head) * a.dim;
  for (int item = threadIdx.x; item < count * a.dim; item += blockDim.x) {
    const int h = item / a.dim, i = item % a.dim;
    const float3 all = of_warps(h, i);
    if (used == 1) {
      out[h * a.dim + i] = all.z / all.y;
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
  merge_splits<H>(a, a.partial + slot * a.splits * H * width, out, used, count);
}

}  // namespace temper::backends::paged_float32
