#pragma once
#include "backends/gpu/device_code.h"

// Heads of a fused product, as the kernels for rotary_pos_emb hand them to groups of neighbouring threads.
namespace temper::backends {

inline constexpr int kHeadBatch = 2;  // heads of one token that a group takes at a time

// The heads of one kind.
template <class T>
struct Part {
  const T* in;                    // forward x, backward dy: [tokens, heads, head_dim]
  T* out;                         // forward y, backward dx
  int64_t in_stride, out_stride;  // between tokens
  const T* x;                     // backward: what was normed
  float* inv_rms;
  const T* weight;  // of the norm
  int heads;
  unsigned blocks;  // that work on them
};

enum Kind { kQueries, kKeys, kValues };

template <class T>
struct Job {
  Part<T> parts[3];  // by kind
  const int* positions;
  const float *cos, *sin;
  int64_t tokens, row;  // row: of qkv
  int normed, half;     // normed: heads of a token
  float eps, inverse_dim;
  float* dweights;  // [blocks, head_dim], or null
};

template <int kGroup>
__device__ inline float group_sum(float value) {
  for (int lane = kGroup / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane, kGroup);
  return value;
}

// Both halves of a head, a thread's part of them.
template <class T, int N>
struct Head {
  Pack<T, N> low, high;
  __device__ void load(const T* from, int half) {
    low = load_pack<T, N>(from);
    high = load_pack<T, N>(from + half);
  }
  __device__ void store(T* to, int half) const {
    store_pack(to, low);
    store_pack(to + half, high);
  }
};

// Rows of the tables are as aligned as packs are: half a head is a multiple of N.
template <int N>
struct Angles {
  alignas(16) float cos[N];
  alignas(16) float sin[N];

  template <class T>
  __device__ void load(const Job<T>& job, int64_t token, int at) {
    const int64_t from = int64_t{__ldg(job.positions + token)} * job.half + at;
    constexpr int kWidth = N % 4 == 0 ? 4 : 1;
    for (int i = 0; i < N; i += kWidth) {
      *reinterpret_cast<Pack<float, kWidth>*>(cos + i) = load_pack<float, kWidth>(job.cos + from + i);
      *reinterpret_cast<Pack<float, kWidth>*>(sin + i) = load_pack<float, kWidth>(job.sin + from + i);
    }
  }
};

// Which heads a group of threads takes next: a batch of one token's.
template <int kGroup>
struct Place {
  unsigned unit, step, per_token, units;

  template <class T>
  __device__ Place(const Job<T>& job, const Part<T>& part, unsigned block)
      : unit(block * (kThreads / kGroup) + threadIdx.x / kGroup),
        step(part.blocks * (kThreads / kGroup)),
        per_token((part.heads + kHeadBatch - 1) / kHeadBatch),
        units(static_cast<unsigned>(job.tokens) * per_token) {}

  // Whole warps go on together: shuffles need every thread.
  __device__ bool any() const { return unit - threadIdx.x % 32 / kGroup < units; }
  __device__ bool there() const { return unit < units; }
  __device__ void advance() { unit += step; }
  __device__ int64_t token() const { return min(unit, units - 1) / per_token; }
  __device__ int first() const { return static_cast<int>(min(unit, units - 1) % per_token) * kHeadBatch; }
};

// Which part a block works on; `block` becomes its number among that part's.
template <class T>
__device__ inline int part_of(const Job<T>& job, unsigned& block) {
  int which = 0;
  for (; block >= job.parts[which].blocks; ++which) block -= job.parts[which].blocks;
  return which;
}

}  // namespace temper::backends
