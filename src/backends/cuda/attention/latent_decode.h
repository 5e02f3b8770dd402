#pragma once
#include "backends/gpu/device_code.h"

// What the kernels of latent_decode share.
namespace temper::backends {

inline constexpr int kLatentSplits = 128;   // of a sequence's positions, at most
inline constexpr int kLatentMinSplit = 64;  // positions that are worth a block of their own
inline constexpr float kNoScore = -1e30f;   // below every score, and finite

template <class T>
struct LatentArguments {
  const T *q, *latent, *weight, *a, *b;
  T *cache, *y;
  const int* lengths;
  const int* pages;  // [sequences, page_width]: where each sequence's positions lie
  float* absorbed;   // [sequences, heads, width], with the scale and log2(e): scores are powers of two
  float* partial;  // [sequences, heads, splits, rank + 2]: largest score, weights' sum, weighted sum of rows
  int heads, nope, rope, value, rank, low, capacity;
  int page_width, page_tokens, page_shift;  // page_tokens = 1 << page_shift; -1 where it is no power of two
  int splits;                               // that the capacity can need
  float scale, update_scale;

  __device__ int width() const { return rank + rope; }
  // Of the cache, of a position below the capacity.
  __device__ T* row_at(int sequence, int position) const {
    const int page = page_shift < 0 ? position / page_tokens : position >> page_shift;
    int64_t place = position - page * page_tokens;
    place += int64_t{__ldg(pages + sequence * page_width + page)} * page_tokens;
    return cache + place * width();
  }
  __device__ int64_t row(int head) const { return int64_t{head} * (nope + value); }  // of the weight
  __device__ float* split_of(int sequence, int head, int split) const {
    return partial + ((int64_t{sequence} * heads + head) * splits + split) * (rank + 2);
  }
};

// How a sequence's positions are cut: by their number alone.
struct LatentSplits {
  int size, used;
};
__device__ inline LatentSplits latent_splits(int positions) {
  const int even = (positions + kLatentSplits - 1) / kLatentSplits;
  const int size = max((even + 31) / 32 * 32, kLatentMinSplit);
  return {size, (positions + size - 1) / size};
}

__device__ inline float power_below(float score, float largest) { return exp2f(score - largest); }

// By tensor cores: rows of 512 + 64 entries in bfloat16, on GPUs that have the shared memory.
bool fits_latent_tiles(int64_t rank, int64_t width, Device device);
void attend_in_tiles(const LatentArguments<__nv_bfloat16>& arguments, int64_t sequences, Device device);

}  // namespace temper::backends
