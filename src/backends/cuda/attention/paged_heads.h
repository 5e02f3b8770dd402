#pragma once
#include "backends/cuda/attention/paged_pieces.h"

// What a warp computes of a piece of paged_decode.cu's work. Scores of a tile are tokens by heads, sums
// elements by heads: eight heads are the narrow side of the tensor cores' products.
namespace temper::backends {

template <int kDim>
class PieceQueries {
 public:
  __device__ PieceQueries(const PagedArguments& a, const PagedPiece& piece) : a_(a), piece_(piece) {
    const __nv_bfloat16* const row =
        a.q + piece.item.row * a.q_stride + int64_t{piece.first_head + lane() / 4} * a.dim;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = k * 16 + half * 8 + lane() % 4 * 2;
        q_[k][half] =
            lane() / 4 < piece.heads && column < a.dim ? *reinterpret_cast<const uint32_t*>(row + column) : 0;
      }
  }

  // -infinity where a token is not seen.
  __device__ void score(float (&to)[4], const PagedKeys<kDim>& tile, int position) const {
    float scores[2][4] = {};  // of even and odd steps: products do not wait for one another
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t keys[4];
      view(tile.keys).left(keys, 0, k * 16);
      multiply(scores[k % 2], keys, q_[k][0], q_[k][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = ordered_score(scores[0][i], scores[1][i], a_.scale);
    const PagedItem& item = piece_.item;
    if (position + kPieceTokens > item.end || item.leaves_out(position, a_.window))
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (item.leaves_out(position + sum_row(i), a_.window)) to[i] = -INFINITY;
  }

 private:
  const PagedArguments& a_;
  const PagedPiece& piece_;
  uint32_t q_[kDim / 16][2];  // of head lane / 4
};

// The largest scores of a tile, of heads sum_column() and the next.
__device__ inline float2 largest_of(const float (&scores)[4]) {
  float2 most{fmaxf(scores[0], scores[2]), fmaxf(scores[1], scores[3])};
#pragma unroll
  for (int other = 4; other < 32; other *= 2) {
    most.x = fmaxf(most.x, __shfl_xor_sync(0xffffffffu, most.x, other));
    most.y = fmaxf(most.y, __shfl_xor_sync(0xffffffffu, most.y, other));
  }
  return most;
}

// Sums of values by weights, relative to the largest score so far: kOwn times 16 elements from `first_column`
// on.
template <int kDim, int kOwn>
class PieceSums {
 public:
  __device__ explicit PieceSums(int first_column = 0) : first_column_(first_column) {}

  // Scores of a tile, and the largest of each head.
  __device__ void add(float (&scores)[4], float2 most, const PagedKeys<kDim>& tile) {
    rescale(most);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = ordered_weight(scores[i], largest_[i % 2]);
      sums_[i % 2] = __fadd_rn(sums_[i % 2], scores[i]);
    }
    const uint32_t upper = turn(pair_of(scores[0], scores[1])), lower = turn(pair_of(scores[2], scores[3]));
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      uint32_t values[4];
      view(tile.values).left_turned(values, first_column_ + k * 16, 0);
      multiply(y_[k], values, upper, lower);
    }
  }

  // The result where the sequence is one item, else this item's part of it.
  __device__ void store(const PagedArguments& a, const PagedUnits& units, const PagedPiece& piece) {
    const PagedItem& item = piece.item;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        sums_[h] = __fadd_rn(sums_[h], __shfl_xor_sync(0xffffffffu, sums_[h], other));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = piece.first_head + sum_column(h);
      if (sum_column(h) >= piece.heads) continue;
      const float share = item.splits == 1 ? ordered_share(sums_[h], a.sink(head, largest_[h])) : 1;
      const int64_t split = int64_t{item.number} * a.heads + head;
      if (item.splits > 1 && lane() < 4 && first_column_ == 0) {
        units.stats[split * 2] = largest_[h];
        units.stats[split * 2 + 1] = sums_[h];
      }
#pragma unroll
      for (int k = 0; k < kOwn; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = first_column_ + k * 16 + sum_row(half * 2);
          if (column >= a.dim) continue;
          const float value = __fmul_rn(y_[k][h + half * 2], share);
          if (item.splits == 1)
            a.y[(int64_t{item.row} * a.heads + head) * a.dim + column] = narrow<__nv_bfloat16>(value);
          else
            units.partial[split * a.dim + column] = value;
        }
    }
  }

 private:
  __device__ void rescale(float2 tile) {
    const float most[2] = {fmaxf(largest_[0], tile.x), fmaxf(largest_[1], tile.y)};
    if (!__any_sync(0xffffffffu, most[0] > largest_[0] || most[1] > largest_[1])) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float shrink = ordered_weight(largest_[h], most[h]);
      largest_[h] = most[h];
      sums_[h] = __fmul_rn(sums_[h], shrink);
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        y_[k][h] = __fmul_rn(y_[k][h], shrink);
        y_[k][h + 2] = __fmul_rn(y_[k][h + 2], shrink);
      }
    }
  }

  const int first_column_;
  float y_[kOwn][4] = {};                                             // elements by heads
  float largest_[2] = {kNoPagedScore, kNoPagedScore}, sums_[2] = {};  // of heads sum_column() and the next
};

}  // namespace temper::backends
