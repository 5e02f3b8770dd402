#pragma once
#include "backends/gpu/device_code.h"

// Attention by tiles in shared memory, in float32: what its kernels share. A block has a tile of rows of its
// own and meets others; 16 x 16 threads hold their products. Thread (y, x) has rows y + 16 i, and columns x +
// 16 j of products between tiles or 4 x + 64 j and the next three of rows.
namespace temper::backends {

inline constexpr int kSide = 16;  // threads along each edge

// `kDim`: elements of a row, as many as the largest head has. Four tiles and their products fit into the 99
// KiB that a block has on the smallest GPUs (compute capability 8.6, 8.9 and 12.0).
template <int kDim>
struct TileSizes {
  static constexpr int kTile = 4096 / kDim;    // rows
  static constexpr int kPitch = kDim + 4;      // of a row in shared memory: neighbours lie in other banks
  static constexpr int kPairs = kTile + 4;     // of a row of products
  static constexpr int kEach = kTile / kSide;  // rows and columns of a thread
  static constexpr int kQuads = kDim / (4 * kSide);

  // Floats of shared memory for `tiles` tiles and their products.
  static constexpr int floats(int tiles) { return tiles * kTile * kPitch + kTile * kPairs; }
};

__device__ inline int thread_row() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ inline int thread_column() { return static_cast<int>(threadIdx.x) % kSide; }

// The sum, or the largest, of the threads of a row, in all of them.
__device__ inline float row_sum(float value) {
  for (int lane = kSide / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane, kSide);
  return value;
}
__device__ inline float row_max(float value) {
  for (int lane = kSide / 2; lane > 0; lane /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lane, kSide));
  return value;
}

// `rows` of a head, zeros behind them and behind `dim`.
template <int kDim, class T>
__device__ void load_tile(float* to, const T* from, int64_t stride, int rows, int dim) {
  for (int i = threadIdx.x; i < TileSizes<kDim>::kTile * kDim; i += kThreads) {
    const int row = i / kDim, column = i % kDim;
    const bool there = row < rows && column < dim;
    to[row * TileSizes<kDim>::kPitch + column] = there ? widen(from[row * stride + column]) : 0.f;
  }
}

// out = own otherᵀ.
template <int kDim, class S = TileSizes<kDim>>
__device__ void multiply_tiles(const float* own, const float* other, float (&out)[S::kEach][S::kEach]) {
  const float* const a = own + thread_row() * S::kPitch;
  const float* const b = other + thread_column() * S::kPitch;
  for (auto& row : out)
    for (float& value : row) value = 0;
#pragma unroll 4
  for (int d = 0; d < kDim; d += 4) {
    float4 x[S::kEach], y[S::kEach];
#pragma unroll
    for (int i = 0; i < S::kEach; ++i) x[i] = *reinterpret_cast<const float4*>(a + i * kSide * S::kPitch + d);
#pragma unroll
    for (int j = 0; j < S::kEach; ++j) y[j] = *reinterpret_cast<const float4*>(b + j * kSide * S::kPitch + d);
#pragma unroll
    for (int i = 0; i < S::kEach; ++i)
#pragma unroll
      for (int j = 0; j < S::kEach; ++j)
        out[i][j] += x[i].x * y[j].x + x[i].y * y[j].y + x[i].z * y[j].z + x[i].w * y[j].w;
  }
}

// A thread's part of rows of the own tile.
template <int kDim>
struct TileSums {
  using S = TileSizes<kDim>;
  float4 sums[S::kEach][S::kQuads] = {};

  __device__ void scale(int row, float factor) {
    for (float4& s : sums[row]) s = make_float4(s.x * factor, s.y * factor, s.z * factor, s.w * factor);
  }
  // += pairs other, where pairs are [own, other].
  __device__ void add(const float* pairs, const float* other) {
    const float* const p = pairs + thread_row() * S::kPairs;
    const float* const o = other + 4 * thread_column();
#pragma unroll 4
    for (int c = 0; c < S::kTile; ++c) {
      float4 values[S::kQuads];
#pragma unroll
      for (int j = 0; j < S::kQuads; ++j)
        values[j] = *reinterpret_cast<const float4*>(o + c * S::kPitch + 4 * kSide * j);
#pragma unroll
      for (int i = 0; i < S::kEach; ++i) {
        const float factor = p[i * kSide * S::kPairs + c];
#pragma unroll
        for (int j = 0; j < S::kQuads; ++j) {
          float4& s = sums[i][j];
          s.x += factor * values[j].x;
          s.y += factor * values[j].y;
          s.z += factor * values[j].z;
          s.w += factor * values[j].w;
        }
      }
    }
  }
  template <class T>
  __device__ void store(T* to, int64_t stride, int rows, int dim) const {
    for (int i = 0; i < S::kEach; ++i) {
      const int row = thread_row() + kSide * i;
      if (row >= rows) continue;
      for (int j = 0; j < S::kQuads; ++j) {
        const int column = 4 * thread_column() + 4 * kSide * j;
        const float values[] = {sums[i][j].x, sums[i][j].y, sums[i][j].z, sums[i][j].w};
        for (int k = 0; k < 4; ++k)
          if (column + k < dim) to[row * stride + column + k] = narrow<T>(values[k]);
      }
    }
  }
};

// Products of a thread, where other threads read them.
template <int kDim, class S = TileSizes<kDim>>
__device__ void share_pairs(float* pairs, const float (&values)[S::kEach][S::kEach]) {
  for (int i = 0; i < S::kEach; ++i)
    for (int j = 0; j < S::kEach; ++j)
      pairs[(thread_row() + kSide * i) * S::kPairs + thread_column() + kSide * j] = values[i][j];
}

}  // namespace temper::backends
