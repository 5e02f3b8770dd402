#pragma once
#include "backends/cuda/delta/delta_rule.h"

// What a block of delta_chunk_gradients.cu has in shared memory, and the sums of its warps, in registers.
namespace temper::backends {

// Warps have 16 rows each, and one of kParts parts of the columns.
inline constexpr int kGradientThreads = 512, kParts = kGradientThreads / 128;
inline constexpr int kPartDim = kMostDim / kParts, kPartChunk = kChunk / kParts;

enum GradientDot { kOfQueries, kOfKnown, kOfKept, kOfValues, kDots };  // what dots are with

struct GradientCoefficients {  // gradients of q kᵀ and of k kᵀ
  Brain qk[kChunk][kSquarePitch], kk[kChunk][kSquarePitch];
};
struct GradientShared {
  Brain q[kChunk][kWidePitch], k[kChunk][kWidePitch];
  Brain dy[kChunk][kWidePitch], u[kChunk][kWidePitch], w[kChunk][kWidePitch];
  union {
    struct {
      Brain state[kMostDim][kWidePitch], dstate[kMostDim][kWidePitch];  // transposed
    };
    GradientCoefficients of;  // once the states are no longer read
  };
  float factors[kFactors][kChunk];
  double sums[kChunk];
  float q_norms[kChunk], k_norms[kChunk];
  float dots[kDots][kParts][kChunk];
  float rows[kParts][kChunk], betas[kParts][kChunk];  // of the gradients of decays, by row; of beta
  float columns[4][kChunk];                           // the same by column, of 16 rows each
  float whole[kGradientThreads / 32], own[kChunk];
};

// The sum over the four lanes that have a row.
__device__ inline float over_row(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
// The sum over the eight lanes that have a column.
__device__ inline float over_column(float value) {
  for (int step = 4; step < 32; step *= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// The sum over the parts of a row.
__device__ inline float over_parts(const float (&parts)[kParts][kChunk], int t) {
  float sum = 0;
  for (const auto& part : parts) sum += part[t];
  return sum;
}

// [16, kPartDim] of a warp: rows are tokens, columns a part of a key's.
struct KeySums {
  float values[kPartDim / 8][4] = {};

  template <class F>
  __device__ void each_pair(F&& f) {  // f(row of the warp's, column of the part, value, next value)
#pragma unroll
    for (int n = 0; n < kPartDim / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2) f(sum_row(i), n * 8 + sum_column(), values[n][i], values[n][i + 1]);
  }
  // += `rows` [64, values] times a transposed state.
  __device__ void add_product(const Brain (&rows)[kChunk][kWidePitch],
                              const Brain (&state)[kMostDim][kWidePitch], int row, int column) {
#pragma unroll
    for (int k = 0; k < kMostDim; k += 16) {
      uint32_t left[4];
      view(rows).left(left, row, k);
      multiply_row(values, left, [&](uint32_t(&b)[4], int n) { view(state).right(b, k, column + n); });
    }
  }
  // += a lower triangle, or its transpose, times `rows` [64, keys].
  template <bool kTurned>
  __device__ void add_triangle(const Brain (&triangle)[kChunk][kSquarePitch],
                               const Brain (&rows)[kChunk][kWidePitch], int row, int column) {
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      if (kTurned ? k < row : k > row) continue;
      uint32_t left[4];
      if constexpr (kTurned)
        view(triangle).left_turned(left, row, k);
      else
        view(triangle).left(left, row, k);
      multiply_row(values, left, [&](uint32_t(&b)[4], int n) { view(rows).right(b, k, column + n); });
    }
  }
};

// [16, kPartChunk] of a warp: rows and columns are tokens.
struct PairSums {
  float values[kPartChunk / 8][4] = {};

  // += `rows` `others`ᵀ, both [64, 128].
  __device__ void add_product(const Brain (&rows)[kChunk][kWidePitch],
                              const Brain (&others)[kChunk][kWidePitch], int row, int column) {
    if (column > row + 15) return;  // right of the diagonal
#pragma unroll
    for (int k = 0; k < kMostDim; k += 16) {
      uint32_t left[4];
      view(rows).left(left, row, k);
      multiply_row(values, left,
                   [&](uint32_t(&b)[4], int n) { view(others).right_turned(b, k, column + n); });
    }
  }
};

}  // namespace temper::backends
