// Scores and weighted sums of 16 heads at once by tensor cores. Queries and weights are float32 and cut into two
// bfloat16 each, whose products are added up: what is left is far below the rounding of the result.
#include "backends/cuda/latent_decode.h"
#include "backends/gpu/matrix_products.h"

namespace temper::backends {
namespace {

using Brain = __nv_bfloat16;

constexpr int kWarps = 8, kHeads = 16, kKeys = 32, kStages = 3, kRank = 512, kWidth = 576;
constexpr int kRow = kWidth + 8;      // of shared memory: rows of a matrix begin in different banks
constexpr int kWeights = kKeys + 8;   // the same, of the weights' rows
constexpr int kSteps = kWidth / 16 / 2;  // of a warp, which has half of a row
constexpr int kColumns = kRank / kWarps / 8;  // of a warp, by eights
constexpr int kChunks = kWidth / 8;           // of a row

struct Shared {
  Brain keys[kStages][kKeys][kRow];  // one to read from while the others are filled
  Brain queries[2][kHeads][kRow];
  Brain weights[2][kHeads][kWeights];
  float scores[2][kHeads][kKeys + 1];  // of both halves of a row
  float shrink[kHeads];
};

// value = high + low, with a relative error of about 2^-17.
__device__ inline void cut_in_two(float value, Brain* high, Brain* low) {
  *high = __float2bfloat16_rn(value);
  *low = __float2bfloat16_rn(value - __bfloat162float(*high));
}

// One block: one sequence, up to 16 heads, one split.
__global__ void __launch_bounds__(kWarps * 32) attend_tiles(LatentArguments<Brain> a) {
  extern __shared__ __align__(16) char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  const int sequence = blockIdx.z, split = blockIdx.x, first_head = blockIdx.y * kHeads;
  const int count = min(kHeads, a.heads - first_head), length = a.lengths[sequence];
  if (length < 0 || length >= a.capacity) return;
  const LatentSplits splits = latent_splits(length + 1);
  if (split >= splits.used) return;
  const int begin = split * splits.size, end = min(begin + splits.size, length + 1);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Brain* const latent = a.latent + int64_t{sequence} * kWidth;

  // Rows past the end are zeros; the new token comes from its own place.
  const auto fetch = [&](int stage, int first) {
    for (int chunk = threadIdx.x; first < end && chunk < kKeys * kChunks; chunk += kWarps * 32) {
      const int row = chunk / kChunks, column = chunk % kChunks * 8, position = first + row;
      const Brain* from = position >= length ? latent : a.row_at(sequence, position);
      load_chunk(shared_address(&s.keys[stage][row][column]), from + column, position < end ? 16 : 0);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0, begin);
  fetch(1, begin + kKeys);
  for (int i = threadIdx.x; i < kHeads * kWidth; i += kWarps * 32) {
    const int head = i / kWidth, column = i % kWidth;
    const float value =
        head < count ? a.absorbed[(int64_t{sequence} * a.heads + first_head + head) * kWidth + column] : 0.f;
    cut_in_two(value, &s.queries[0][head][column], &s.queries[1][head][column]);
  }
  if (end > length && blockIdx.y == 0)  // once, by the split that the new token belongs to
    for (int i = threadIdx.x; i < kChunks; i += kWarps * 32)
      store_pack(a.row_at(sequence, length) + i * 8, load_pack<Brain, 8>(latent + i * 8));

  float sums[kColumns][4] = {};
  float largest = kNoScore, sum = 0;  // of head threadIdx.x / 16; sum: this thread's part
  const int head = threadIdx.x / 16, own = threadIdx.x % 16;
  for (int first = begin, stage = 0; first < end; first += kKeys, stage = (stage + 1) % kStages) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    fetch((stage + 2) % kStages, first + 2 * kKeys);

    float scores[4][4] = {};  // apart, so that products do not wait for one another
    const int keys = warp % 4 * 8, half = warp / 4, from = half * kSteps * 16;
#pragma unroll 3
    for (int step = 0; step < kSteps; step += 2) {
      const int column = from + step * 16;
      uint32_t b[4];
      load_matrices(b, &s.keys[stage][keys + lane % 8][column + lane / 8 * 8]);
#pragma unroll
      for (int part = 0; part < 2; ++part)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          uint32_t q[4];
          load_matrices(q, &s.queries[part][lane % 16][column + k * 16 + lane / 16 * 8]);
          multiply(scores[2 * part + k], q, b[2 * k], b[2 * k + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s.scores[half][lane / 4 + i / 2 * 8][keys + lane % 4 * 2 + i % 2] =
          scores[0][i] + scores[1][i] + (scores[2][i] + scores[3][i]);
    __syncthreads();

    float here[2], most = largest;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = own + 16 * i;
      here[i] = first + key < end ? s.scores[0][head][key] + s.scores[1][head][key] : kNoScore;
      most = fmaxf(most, here[i]);
    }
#pragma unroll
    for (int other = 8; other > 0; other /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, other));
    const float shrink = power_below(largest, most);
    largest = most;
    sum *= shrink;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float weight = first + own + 16 * i < end ? power_below(here[i], most) : 0.f;
      sum += weight;
      cut_in_two(weight, &s.weights[0][head][own + 16 * i], &s.weights[1][head][own + 16 * i]);
    }
    if (own == 0) s.shrink[head] = shrink;
    __syncthreads();

    const float upper = s.shrink[lane / 4], lower = s.shrink[lane / 4 + 8];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sums[c][0] *= upper;
      sums[c][1] *= upper;
      sums[c][2] *= lower;
      sums[c][3] *= lower;
    }
#pragma unroll
    for (int step = 0; step < kKeys; step += 16) {
      uint32_t weights[2][4];
#pragma unroll
      for (int part = 0; part < 2; ++part)
        load_matrices(weights[part], &s.weights[part][lane % 16][step + lane / 16 * 8]);
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        uint32_t b[4];
        load_transposed(b, &s.keys[stage][step + lane % 16][(warp * kColumns + c) * 8 + lane / 16 * 8]);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          multiply(sums[c], weights[part], b[0], b[1]);
          multiply(sums[c + 1], weights[part], b[2], b[3]);
        }
      }
    }
  }

#pragma unroll
  for (int other = 8; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
  if (own == 0 && head < count) {
    float* const to = a.split_of(sequence, first_head + head, split);
    to[0] = largest;
    to[1] = sum;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane / 4 + 8 * i;
    if (row >= count) continue;
    float* const to = a.split_of(sequence, first_head + row, split) + 2 + warp * kColumns * 8 + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      *reinterpret_cast<float2*>(to + c * 8) = {sums[c][2 * i], sums[c][2 * i + 1]};
  }
}

}  // namespace

bool fits_latent_tiles(int64_t rank, int64_t width, Device device) {
  return rank == kRank && width == kWidth && scratch_bytes(device) >= static_cast<int64_t>(sizeof(Shared));
}

void attend_in_tiles(const LatentArguments<Brain>& arguments, int64_t sequences, Device device) {
  allow_scratch(attend_tiles, sizeof(Shared));
  const dim3 grid(static_cast<unsigned>(arguments.splits), static_cast<unsigned>((arguments.heads + kHeads - 1) / kHeads),
                  static_cast<unsigned>(sequences));
  attend_tiles<<<grid, kWarps * 32, sizeof(Shared), device::stream(device)>>>(arguments);
}

}  // namespace temper::backends
