#pragma once
#include "backends/cuda/attention/paged_attention.h"
#include "backends/gpu/matrix_products.h"

// The order in which attention in bfloat16 adds up, so that a token's result has the same bits in a step of
// decoding, in a part of a prompt and in a row of training. Keys are met 16 at a time, from multiples of 16
// on: products over the elements of a head in two sums, of its even and odd sixteens; then the largest score
// so far, the weights, eight sums of them, of every eighth key, and the products with values. At fixed
// positions the sums are added to the total and restart at 0: other warps may compute them. Operations
// are written so that no compiler joins them differently. Keys that a token does not see change nothing.
namespace temper::backends {

inline constexpr int kOrderedKeys = 16;
inline constexpr int kLeastSplit = 512, kSplitSteps = 8;
static_assert(kLeastSplit % 64 == 0, "tiles of keys end where splits do");

// Where the part ends that a position is in: parts of 512 up to 8,192, then eight to each doubling.
__host__ __device__ inline int split_end(int position) {
  int size = kLeastSplit;
  while (position >= 2 * kSplitSteps * size) size *= 2;
  return (position / size + 1) * size;
}

__device__ inline float ordered_score(float even, float odd, float scale) {
  return __fmul_rn(__fadd_rn(even, odd), scale);
}
__device__ inline float ordered_weight(float score, float largest) {
  return power_of_2(__fsub_rn(score, largest));
}

// Merges the sums of one part with those of all parts before it, whose largest scores differ.
struct Fold {
  float before, part;

  // `largest` becomes that of both.
  __device__ static Fold of(float& largest, float own) {
    const float most = fmaxf(largest, own);
    const Fold fold{power_of_2(__fsub_rn(largest, most)), power_of_2(__fsub_rn(own, most))};
    largest = most;
    return fold;
  }
  __device__ float operator()(float total, float own) const {
    return __fmaf_rn(own, part, __fmul_rn(total, before));
  }
};

// What a head's sums are multiplied by: `sink` is of `largest`.
__device__ inline float ordered_share(float sum, float sink) { return __fdiv_rn(1.f, __fadd_rn(sum, sink)); }

}  // namespace temper::backends
