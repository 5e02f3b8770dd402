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
  int64_t between_positions;  // of a token, where it has three; 0: it has one
  int sections[3];            // the pairs of each (ops::RotarySections)
  bool interleaved_sections;
  const float *cos, *sin;
  int64_t tokens, row;  // row: of qkv
  int normed, half;     // normed: heads of a token
  int pairs;            // of a head that are rotated: half, or fewer
  bool interleaved;
  float eps, inverse_dim, offset;
  float* dweights;  // [blocks, head_dim], or null
};

template <int kGroup>
__device__ inline float group_sum(float value) {
  for (int lane = kGroup / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane, kGroup);
  return value;
}

// What a norm multiplies with. kWhole, the usual form of heads, has no offset.
template <bool kWhole, class T>
__device__ inline float factor(T weight, float offset) {
  if constexpr (kWhole) return widen(weight);
  return widen(weight) + offset;
}

// Where the two packs of a thread are in a head, N pairs from pair `at` on. kWhole: halves of whole heads.
// Otherwise pairs may be neighbours, and behind the last pair that is rotated come both halves of the rest.
template <bool kWhole>
struct Spot {
  int at, half;
  __device__ Spot(int first, int heads_half) : at(first), half(heads_half) {}
  template <class T>
  __device__ Spot(const Job<T>& job, int first) : Spot(first, job.half) {}
  __device__ bool turns() const { return true; }
  __device__ bool interleaved() const { return false; }
  __device__ int low() const { return at; }
  __device__ int high(int) const { return at + half; }
};
template <>
struct Spot<false> {
  int at, half, pairs;
  bool neighbours;
  template <class T>
  __device__ Spot(const Job<T>& job, int first)
      : at(first), half(job.half), pairs(job.pairs), neighbours(job.interleaved) {}
  __device__ bool turns() const { return at < pairs; }
  __device__ bool interleaved() const { return neighbours && turns(); }
  __device__ int low() const { return interleaved() ? 2 * at : turns() ? at : pairs + at; }
  __device__ int high(int lanes) const {
    return interleaved() ? 2 * at + lanes : turns() ? pairs + at : half + at;
  }
};

// Both elements of a thread's pairs.
template <class T, int N>
struct Head {
  Pack<T, N> low, high;
  template <bool kWhole>
  __device__ void load(const T* head, const Spot<kWhole>& spot) {
    low = load_pack<T, N>(head + spot.low());
    high = load_pack<T, N>(head + spot.high(N));
    if constexpr (!kWhole)
      if (spot.interleaved()) part();
  }
  template <bool kWhole>
  __device__ void store(T* head, const Spot<kWhole>& spot) const {
    Head out = *this;
    if constexpr (!kWhole)
      if (spot.interleaved()) out.mix();
    store_pack(head + spot.low(), out.low);
    store_pack(head + spot.high(N), out.high);
  }

  // From 2 N elements in their order to the first and the second of each pair, and back.
  __device__ void part() {
    const Head in = *this;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      low.values[i] = in.element(2 * i);
      high.values[i] = in.element(2 * i + 1);
    }
  }
  __device__ void mix() {
    const Head in = *this;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      low.values[i] = i % 2 == 0 ? in.low.values[i / 2] : in.high.values[i / 2];
      high.values[i] = (N + i) % 2 == 0 ? in.low.values[(N + i) / 2] : in.high.values[(N + i) / 2];
    }
  }
  __device__ T element(int i) const { return i < N ? low.values[i % N] : high.values[i % N]; }
};

// Rows of the tables are as aligned as packs are: what is rotated of half a head is a multiple of N.
template <int N>
struct Angles {
  alignas(16) float cos[N];
  alignas(16) float sin[N];

  template <class T, bool kWhole>
  __device__ void load(const Job<T>& job, int64_t token, const Spot<kWhole>& spot) {
    if (!spot.turns()) {
      for (int i = 0; i < N; ++i) {
        cos[i] = 1;
        sin[i] = 0;
      }
      return;
    }
    if constexpr (!kWhole)
      if (job.between_positions > 0) return load_by_sections(job, token, spot.at);
    const int64_t from = int64_t{__ldg(job.positions + token)} * (kWhole ? job.half : job.pairs) + spot.at;
    constexpr int kWidth = N % 4 == 0 ? 4 : 1;
    for (int i = 0; i < N; i += kWidth) {
      *reinterpret_cast<Pack<float, kWidth>*>(cos + i) = load_pack<float, kWidth>(job.cos + from + i);
      *reinterpret_cast<Pack<float, kWidth>*>(sin + i) = load_pack<float, kWidth>(job.sin + from + i);
    }
  }

 private:
  // Each pair's from the row of its own position.
  template <class T>
  __device__ void load_by_sections(const Job<T>& job, int64_t token, int first) {
    for (int i = 0; i < N; ++i) {
      const int pair = first + i, place = pair % 3, time = job.sections[0], height = job.sections[1];
      int which = pair < time ? 0 : pair < time + height ? 1 : 2;
      if (job.interleaved_sections) which = place > 0 && pair < 3 * job.sections[place] ? place : 0;
      const int64_t at =
          int64_t{__ldg(job.positions + which * job.between_positions + token)} * job.pairs + pair;
      cos[i] = __ldg(job.cos + at);
      sin[i] = __ldg(job.sin + at);
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
