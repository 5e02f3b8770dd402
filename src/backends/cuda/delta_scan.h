#pragma once
#include "backends/cuda/delta_rule.h"

// What both scans over the chunks of a document share. A block has kSlice columns of the values of one head;
// each warp has 16 rows of the state, and of what has a row for each token 16 rows and half of the columns.
namespace temper::backends {

struct ScanPlace {
  int head, key_head, column, warp;  // column: the first of the values

  __device__ explicit ScanPlace(const DeltaInput& a)
      : head(blockIdx.y),
        key_head(head / a.group()),
        column(blockIdx.z * kSlice),
        warp(static_cast<int>(threadIdx.x) / 32) {}
  __device__ int row() const { return warp % 4 * 16; }             // of tokens
  __device__ int half() const { return warp / 4 * (kSlice / 2); }  // columns of them
  __device__ int columns(const DeltaInput& a) const { return min(kSlice, a.value_dim - column); }
};

// A part of a state, or of its gradient: [16, kSlice] of a warp.
struct StateSums {
  float values[kSlice / 8][4];

  __device__ void scale(float factor) {
    for (auto& tile : values)
      for (float& value : tile) value *= factor;
  }
  __device__ void add(const StateSums& other) {
#pragma unroll
    for (int n = 0; n < kSlice / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] += other.values[n][i];
  }
  // f(key, column of the slice, value, value of the next column), of what exists.
  template <class F>
  __device__ void each_pair(const DeltaInput& a, const ScanPlace& at, F&& f) {
#pragma unroll
    for (int n = 0; n < kSlice / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int key = at.warp * 16 + sum_row(i), column = n * 8 + sum_column();
        if (key < a.key_dim && column < at.columns(a)) f(key, column, values[n][i], values[n][i + 1]);
      }
  }
  __device__ void clear() {
    for (auto& tile : values)
      for (float& value : tile) value = 0;
  }
  // `from`, `to`: [documents, heads, key_dim, value_dim], or null: zeros.
  __device__ void load(const float* from, int document, const DeltaInput& a, const ScanPlace& at) {
    clear();
    if (from == nullptr) return;
    from += a.place(document, at.head) * a.key_dim * a.value_dim + at.column;
    each_pair(a, at, [&](int key, int column, float& first, float& second) {
      const float2 pair = *reinterpret_cast<const float2*>(from + key * a.value_dim + column);
      first = pair.x;
      second = pair.y;
    });
  }
  __device__ void store(float* to, int document, const DeltaInput& a, const ScanPlace& at) {
    if (to == nullptr) return;
    to += a.place(document, at.head) * a.key_dim * a.value_dim + at.column;
    each_pair(a, at, [&](int key, int column, float first, float second) {
      *reinterpret_cast<float2*>(to + key * a.value_dim + column) = {first, second};
    });
  }
  // A copy for products, of all keys.
  __device__ void share(Brain (&to)[kMostDim][kSlicePitch], int warp) const {
#pragma unroll
    for (int n = 0; n < kSlice / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        store_pair(&to[warp * 16 + sum_row(i)][n * 8 + sum_column()], values[n][i], values[n][i + 1]);
  }
  // += matrixᵀ other, with [64 tokens, keys] and [64 tokens, kSlice].
  __device__ void add_product(const Brain (&matrix)[kChunk][kWidePitch],
                              const Brain (&other)[kChunk][kSlicePitch], int warp) {
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      uint32_t left[4];
      view(matrix).left_turned(left, 16 * warp, k);
      multiply_row(values, left, [&](uint32_t(&b)[4], int n) { view(other).right(b, k, n); });
    }
  }
};

// [16, kSlice / 2] of a warp, whose rows are tokens.
struct TokenSums {
  float values[kSlice / 16][4] = {};

  // += rows of `matrix` [64 tokens, keys] times `state`.
  __device__ void add_product(const Brain (&matrix)[kChunk][kWidePitch],
                              const Brain (&state)[kMostDim][kSlicePitch], const ScanPlace& at) {
#pragma unroll
    for (int k = 0; k < kMostDim; k += 16) {
      uint32_t left[4];
      view(matrix).left(left, at.row(), k);
      multiply_row(values, left, [&](uint32_t(&b)[4], int n) { view(state).right(b, k, at.half() + n); });
    }
  }
  // += a lower triangle times `other`, or its transpose.
  template <bool kTurned>
  __device__ void add_triangle(const Brain (&triangle)[kChunk][kSquarePitch],
                               const Brain (&other)[kChunk][kSlicePitch], const ScanPlace& at) {
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      if (kTurned ? k < at.row() : k > at.row()) continue;
      uint32_t left[4];
      if constexpr (kTurned)
        view(triangle).left_turned(left, at.row(), k);
      else
        view(triangle).left(left, at.row(), k);
      multiply_row(values, left, [&](uint32_t(&b)[4], int n) { view(other).right(b, k, at.half() + n); });
    }
  }
  // f(token, column of the slice, value, value of the next column).
  template <class F>
  __device__ void each_pair(const ScanPlace& at, F&& f) {
#pragma unroll
    for (int n = 0; n < kSlice / 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        f(at.row() + sum_row(i), at.half() + n * 8 + sum_column(), values[n][i], values[n][i + 1]);
  }
};

__device__ inline void load_factors(float (&to)[kFactors][kChunk], const DeltaInput& a, int64_t place) {
  for (int i = threadIdx.x; i < kFactors * kChunk / 4; i += blockDim.x)
    load_chunk(shared_address(&to[0][0] + 4 * i), a.factors + place * kFactors * kChunk + 4 * i);
}
// A slice of rows [tokens, heads, value_dim] from a chunk's first token on.
template <int kPitch>
__device__ void load_values(Brain (&to)[kChunk][kPitch], const Brain* from, int64_t stride, int tokens,
                            const DeltaInput& a, const ScanPlace& at) {
  load_rows<kChunk, kSlice>(to, from + int64_t{at.head} * a.value_dim + at.column, stride, tokens,
                            at.columns(a));
}
// A slice of a state, compact, from shared memory.
__device__ inline void store_state(Brain* to, int64_t place, const Brain (&from)[kMostDim][kSlicePitch],
                                   const DeltaInput& a, const ScanPlace& at) {
  to += place * a.key_dim * a.value_dim + at.column;
  for (int i = threadIdx.x; i < a.key_dim * (kSlice / 8); i += kScanThreads) {
    const int key = i / (kSlice / 8), column = i % (kSlice / 8) * 8;
    if (column < at.columns(a))
      store_pack(to + int64_t{key} * a.value_dim + column, load_pack<Brain, 8>(&from[key][column]));
  }
}

}  // namespace temper::backends
