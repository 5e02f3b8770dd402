#pragma once
#include "backends/cuda/delta/delta_rule.h"

// What both scans over the chunks of a document share. A block has kValues values of one head, 16 in each of
// its lanes of two warps. The first warp carries the state along the document, transposed, in registers: sums
// of one product are operands of the next, and nothing but a chunk's own tensors is read. The second brings
// these tensors, does the products that the state does not wait for, and takes results away.
//
// All blocks of a head read the same keys. More values in a block read them less often, which is what bounds
// the scans of long documents, and take more shared memory.
namespace temper::backends {

inline constexpr int kLaneValues = 16;
inline constexpr int kChunkTiles = kChunk / 8, kDimTiles = kMostDim / 8;

template <int kValues>
struct ScanSizes {
  static constexpr int kLanes = kValues / kLaneValues, kRoleThreads = 32 * kLanes,
                       kThreads = 2 * kRoleThreads;
  static constexpr int kPitch = kValues + 8;
};

template <int kValues>
struct ScanPlace {
  int head, key_head, lane;
  int slice;   // the first of the block's values
  int column;  // of those, the first of the lane's
  bool carries;

  __device__ explicit ScanPlace(const DeltaInput& a)
      : head(blockIdx.y),
        key_head(head / a.group()),
        lane(static_cast<int>(threadIdx.x) / 32 % ScanSizes<kValues>::kLanes),
        slice(blockIdx.z * kValues),
        column(lane * kLaneValues),
        carries(threadIdx.x < ScanSizes<kValues>::kRoleThreads) {}
  __device__ int value() const { return slice + column; }
};

// Sums [16 values, 8 kTiles] of a warp.
template <int kTiles>
struct ValueSums {
  float values[kTiles][4];

  __device__ void clear() {
    for (auto& tile : values)
      for (float& value : tile) value = 0;
  }
  // f(sum, sum of the next column, column): columns of pairs.
  template <class F>
  __device__ void each_pair(F&& f) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2) f(values[n][i], values[n][i + 1], n * 8 + sum_column());
  }
  // Each column times the factor of its token.
  __device__ void scale(const float (&factors)[kChunk]) {
    each_pair([&](float& first, float& second, int t) {
      const float2 factor = *reinterpret_cast<const float2*>(&factors[t]);
      first *= factor.x;
      second *= factor.y;
    });
  }
};
using TokenSums = ValueSums<kChunkTiles>;
using KeySums = ValueSums<kDimTiles>;

// A [16 values, 16 kSteps] to the left of products, rounded to bfloat16.
template <int kSteps>
struct ValueRows {
  uint32_t parts[kSteps][4];

  ValueRows() = default;
  __device__ explicit ValueRows(const ValueSums<2 * kSteps>& sums) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) left_of_sums(parts[k], sums.values[2 * k], sums.values[2 * k + 1]);
  }
  // From rows of tokens: 16 values from `column` on.
  template <int kPitch>
  __device__ ValueRows(const Brain (&rows)[16 * kSteps][kPitch], int column) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) view(rows).left_turned(parts[k], column, 16 * k);
  }
  // f(pair of values, the first one's column).
  template <class F>
  __device__ void each_pair(F&& f) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) f(parts[k][i], 16 * k + i / 2 * 8 + sum_column());
  }
};
using TokenRows = ValueRows<kChunk / 16>;
using KeyRows = ValueRows<kMostDim / 16>;

// Products in groups of up to four operands from shared memory, each for two tiles of sums: those of the next
// group are on their way while one is multiplied. load(group, i, b) and multiply(group, i, b).
template <int kGroups, class Load, class Multiply>
__device__ void multiply_groups(Load&& load, Multiply&& multiply) {
  uint32_t b[2][4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) load(0, i, b[0][i]);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (group + 1 < kGroups)
#pragma unroll
      for (int i = 0; i < 4; ++i) load(group + 1, i, b[(group + 1) % 2][i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) multiply(group, i, b[group % 2][i]);
  }
}
template <int kTiles>
__device__ void multiply_two(ValueSums<kTiles>& sums, int n, const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  multiply(sums.values[2 * n], a, b[0], b[1]);
  multiply(sums.values[2 * n + 1], a, b[2], b[3]);
}

// sums [16, tokens] += rows [16, keys] matrixᵀ, of a matrix [tokens, keys].
__device__ inline void add_by_keys(TokenSums& sums, const KeyRows& rows,
                                   const Brain (&matrix)[kChunk][kWidePitch]) {
  multiply_groups<kMostDim / 16>(
      [&](int k, int n, uint32_t(&b)[4]) { view(matrix).right_turned(b, 16 * k, 16 * n); },
      [&](int k, int n, const uint32_t(&b)[4]) { multiply_two(sums, n, rows.parts[k], b); });
}
// sums [16, keys] += rows [16, tokens] matrix, of a matrix [tokens, keys].
__device__ inline void add_by_tokens(KeySums& sums, const TokenRows& rows,
                                     const Brain (&matrix)[kChunk][kWidePitch]) {
  multiply_groups<2 * kChunk / 16>(
      [&](int group, int i, uint32_t(&b)[4]) {
        view(matrix).right(b, group / 2 * 16, (group % 2 * 4 + i) * 16);
      },
      [&](int group, int i, const uint32_t(&b)[4]) {
        multiply_two(sums, group % 2 * 4 + i, rows.parts[group / 2], b);
      });
}
// sums [16, tokens] += rows [16, tokens] times a lower triangle, or times its transpose.
template <bool kTurned>
__device__ void add_triangle(TokenSums& sums, const TokenRows& rows,
                             const Brain (&triangle)[kChunk][kSquarePitch]) {
  const auto is_zero = [](int k, int n) { return kTurned ? n < k : n > k; };
  multiply_groups<kChunk / 16>(
      [&](int k, int n, uint32_t(&b)[4]) {
        if (is_zero(k, n)) return;
        if constexpr (kTurned)
          view(triangle).right_turned(b, 16 * k, 16 * n);
        else
          view(triangle).right(b, 16 * k, 16 * n);
      },
      [&](int k, int n, const uint32_t(&b)[4]) {
        if (!is_zero(k, n)) multiply_two(sums, n, rows.parts[k], b);
      });
}

// Registers of a warp, from one warp of a lane to another.
template <class Vector, int kVectors>
struct Handover {
  Vector vectors[kVectors][32];

  template <class T>
  __device__ void put(const T (&registers)[kVectors][4]) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      vectors[i][lane()] = {registers[i][0], registers[i][1], registers[i][2], registers[i][3]};
  }
  template <class F>
  __device__ void take(F&& f) const {  // f(index, vector)
#pragma unroll
    for (int i = 0; i < kVectors; ++i) f(i, vectors[i][lane()]);
  }
  template <class T>
  __device__ void take(T (&registers)[kVectors][4]) const {
    take([&](int i, const Vector& vector) {
      registers[i][0] = vector.x;
      registers[i][1] = vector.y;
      registers[i][2] = vector.z;
      registers[i][3] = vector.w;
    });
  }
};

// A state [key_dim, value_dim], transposed into sums and back; null: zeros, and nothing.
template <int kValues, class F>
__device__ void each_of_state(KeySums& state, int document, const DeltaInput& a, const ScanPlace<kValues>& at,
                              F&& f) {
  const int64_t start = a.place(document, at.head) * a.key_dim * a.value_dim;
#pragma unroll
  for (int n = 0; n < kDimTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = n * 8 + sum_column(i), value = at.value() + sum_row(i);
      if (key < a.key_dim && value < a.value_dim) f(state.values[n][i], start + key * a.value_dim + value);
    }
}
template <int kValues>
__device__ void load_state(KeySums& state, const float* from, int document, const DeltaInput& a,
                           const ScanPlace<kValues>& at) {
  state.clear();
  if (from != nullptr)
    each_of_state(state, document, a, at, [&](float& value, int64_t place) { value = from[place]; });
}
template <int kValues>
__device__ void store_state(KeySums& state, float* to, int document, const DeltaInput& a,
                            const ScanPlace<kValues>& at) {
  if (to != nullptr)
    each_of_state(state, document, a, at, [&](float value, int64_t place) { to[place] = value; });
}

// Of a chunk, a state as it is multiplied: [value_dim, key_dim], compact.
template <int kValues>
__device__ void store_rows(const KeyRows& state, Brain* to, int64_t place, const DeltaInput& a,
                           const ScanPlace<kValues>& at) {
  to += place * a.key_dim * a.value_dim;
#pragma unroll
  for (int k = 0; k < kMostDim / 16; k += 2)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t keys[4] = {state.parts[k][half], state.parts[k][half + 2], state.parts[k + 1][half],
                          state.parts[k + 1][half + 2]};
      turn_quads(keys);
      const int key = 16 * k + lane() % 4 * 8, value = at.value() + lane() / 4 + half * 8;
      if (key < a.key_dim && value < a.value_dim)
        *reinterpret_cast<uint4*>(to + int64_t{value} * a.key_dim + key) = {keys[0], keys[1], keys[2],
                                                                            keys[3]};
    }
}
// Of a chunk, [16 values, tokens] to rows of tokens [tokens, heads, value_dim].
template <int kValues>
__device__ void store_tokens(const TokenRows& rows, Brain* to, const DeltaChunk& chunk, const DeltaInput& a,
                             const ScanPlace<kValues>& at) {
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    uint32_t values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = turn(rows.parts[k][i]);
    turn_quads(values);
    const int t = 16 * k + lane() % 4 / 2 * 8 + lane() / 4, value = at.value() + lane() % 2 * 8;
    if (t < chunk.tokens && value < a.value_dim)
      *reinterpret_cast<uint4*>(to + ((int64_t{chunk.first} + t) * a.heads + at.head) * a.value_dim +
                                value) = {values[0], values[1], values[2], values[3]};
  }
}

// The threads that bring tensors: all second warps.
template <int kValues>
__device__ void load_keys(Brain (&to)[kChunk][kWidePitch], const Brain* from, int64_t stride,
                          const DeltaChunk& chunk, const DeltaInput& a, const ScanPlace<kValues>& at) {
  constexpr int kThreads = ScanSizes<kValues>::kRoleThreads;
  load_rows<kChunk, kMostDim, kThreads>(to, from + chunk.first * stride + at.key_head * a.key_dim, stride,
                                        chunk.tokens, a.key_dim, threadIdx.x % kThreads);
}
template <int kValues>
__device__ void load_values(Brain (&to)[kChunk][ScanSizes<kValues>::kPitch], const Brain* from,
                            int64_t stride, const DeltaChunk& chunk, const DeltaInput& a,
                            const ScanPlace<kValues>& at) {
  constexpr int kThreads = ScanSizes<kValues>::kRoleThreads;
  load_rows<kChunk, kValues, kThreads>(
      to, from + chunk.first * stride + int64_t{at.head} * a.value_dim + at.slice, stride, chunk.tokens,
      min(kValues, a.value_dim - at.slice), threadIdx.x % kThreads);
}

// Launches with `values` a block, of kernels that are as wide as heads need and shared memory allows.
template <class Launch>
void visit_slices(const DeltaInput& input, Launch&& launch) {
  if (input.wide_slices) return launch.template operator()<64>();
  launch.template operator()<32>();
}
inline dim3 scan_blocks(const DeltaInput& input, int values) {
  return dim3(input.document_count, input.heads, (input.value_dim + values - 1) / values);
}

}  // namespace temper::backends
