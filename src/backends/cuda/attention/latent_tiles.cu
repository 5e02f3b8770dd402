// Scores and weighted sums of 16 heads at once by tensor cores. Queries and weights are float32 and cut into two
// bfloat16 each, whose products are added up: what is left is far below the rounding of the result.
#include "backends/cuda/attention/latent_decode.h"
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
class Block {
 public:
  __device__ Block(const LatentArguments<Brain>& a, Shared& shared, int length, LatentSplits splits)
      : a_(a),
        s_(shared),
        count_(min(kHeads, a.heads - first_head())),
        length_(length),
        begin_(blockIdx.x * splits.size),
        end_(min(begin_ + splits.size, length + 1)) {}

  __device__ void run() {
    fetch(0, begin_);
    fetch(1, begin_ + kKeys);
    cut_queries();
    if (end_ > length_ && blockIdx.y == 0) keep_new_token();  // once, by the split that it belongs to
    for (int first = begin_, stage = 0; first < end_; first += kKeys, stage = (stage + 1) % kStages) {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      __syncthreads();
      fetch((stage + 2) % kStages, first + 2 * kKeys);
      score(stage);
      __syncthreads();
      weigh(first);
      __syncthreads();
      add_rows(stage);
    }
    store();
  }

 private:
  __device__ static int first_head() { return blockIdx.y * kHeads; }
  __device__ static int warp() { return threadIdx.x / 32; }
  // Softmax: the head and, of 16, the number of a thread.
  __device__ static int head() { return threadIdx.x / 16; }
  __device__ static int own() { return threadIdx.x % 16; }
  __device__ const Brain* new_token() const { return a_.latent + int64_t{blockIdx.z} * kWidth; }

  // Rows past the end are zeros; the new token comes from its own place.
  __device__ void fetch(int stage, int first) {
    for (int chunk = threadIdx.x; first < end_ && chunk < kKeys * kChunks; chunk += kWarps * 32) {
      const int row = chunk / kChunks, column = chunk % kChunks * 8, position = first + row;
      const Brain* from = position >= length_ ? new_token() : a_.row_at(blockIdx.z, position);
      load_chunk(shared_address(&s_.keys[stage][row][column]), from + column, position < end_ ? 16 : 0);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ void cut_queries() {
    const float* const queries = a_.absorbed + (int64_t{blockIdx.z} * a_.heads + first_head()) * kWidth;
    for (int i = threadIdx.x; i < kHeads * kWidth; i += kWarps * 32) {
      const int head = i / kWidth, column = i % kWidth;
      cut_in_two(head < count_ ? queries[i] : 0.f, &s_.queries[0][head][column], &s_.queries[1][head][column]);
    }
  }
  __device__ void keep_new_token() const {
    for (int i = threadIdx.x; i < kChunks; i += kWarps * 32)
      store_pack(a_.row_at(blockIdx.z, length_) + i * 8, load_pack<Brain, 8>(new_token() + i * 8));
  }

  // Each warp: eight keys, half of a row.
  __device__ void score(int stage) {
    float scores[4][4] = {};  // apart, so that products do not wait for one another
    const int keys = warp() % 4 * 8, half = warp() / 4, from = half * kSteps * 16;
#pragma unroll 3
    for (int step = 0; step < kSteps; step += 2) {
      const int column = from + step * 16;
      uint32_t b[4];
      load_matrices(b, &s_.keys[stage][keys + lane() % 8][column + lane() / 8 * 8]);
#pragma unroll
      for (int part = 0; part < 2; ++part)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          uint32_t q[4];
          load_matrices(q, &s_.queries[part][lane() % 16][column + k * 16 + lane() / 16 * 8]);
          multiply(scores[2 * part + k], q, b[2 * k], b[2 * k + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s_.scores[half][lane() / 4 + i / 2 * 8][keys + lane() % 4 * 2 + i % 2] =
          scores[0][i] + scores[1][i] + (scores[2][i] + scores[3][i]);
  }

  // Scores become weights relative to the largest so far: 16 threads of a head, two keys each.
  __device__ void weigh(int first) {
    float here[2], most = largest_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = own() + 16 * i;
      here[i] = first + key < end_ ? s_.scores[0][head()][key] + s_.scores[1][head()][key] : kNoScore;
      most = fmaxf(most, here[i]);
    }
#pragma unroll
    for (int other = 8; other > 0; other /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, other));
    const float shrink = power_below(largest_, most);
    largest_ = most;
    sum_ *= shrink;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float weight = first + own() + 16 * i < end_ ? power_below(here[i], most) : 0.f;
      sum_ += weight;
      cut_in_two(weight, &s_.weights[0][head()][own() + 16 * i], &s_.weights[1][head()][own() + 16 * i]);
    }
    if (own() == 0) s_.shrink[head()] = shrink;
  }

  // Each warp: its columns of all heads.
  __device__ void add_rows(int stage) {
    const float upper = s_.shrink[lane() / 4], lower = s_.shrink[lane() / 4 + 8];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      y_[c][0] *= upper;
      y_[c][1] *= upper;
      y_[c][2] *= lower;
      y_[c][3] *= lower;
    }
#pragma unroll
    for (int step = 0; step < kKeys; step += 16) {
      uint32_t weights[2][4];
#pragma unroll
      for (int part = 0; part < 2; ++part)
        load_matrices(weights[part], &s_.weights[part][lane() % 16][step + lane() / 16 * 8]);
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        uint32_t b[4];
        load_transposed(b, &s_.keys[stage][step + lane() % 16][(warp() * kColumns + c) * 8 + lane() / 16 * 8]);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          multiply(y_[c], weights[part], b[0], b[1]);
          multiply(y_[c + 1], weights[part], b[2], b[3]);
        }
      }
    }
  }

  __device__ void store() {
#pragma unroll
    for (int other = 8; other > 0; other /= 2) sum_ += __shfl_xor_sync(0xffffffffu, sum_, other);
    if (own() == 0 && head() < count_) {
      float* const to = a_.split_of(blockIdx.z, first_head() + head(), blockIdx.x);
      to[0] = largest_;
      to[1] = sum_;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane() / 4 + 8 * i;
      if (row >= count_) continue;
      float* const to = a_.split_of(blockIdx.z, first_head() + row, blockIdx.x) + 2 + warp() * kColumns * 8 + lane() % 4 * 2;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) *reinterpret_cast<float2*>(to + c * 8) = {y_[c][2 * i], y_[c][2 * i + 1]};
    }
  }

  const LatentArguments<Brain>& a_;
  Shared& s_;
  const int count_, length_, begin_, end_;
  float y_[kColumns][4] = {};
  float largest_ = kNoScore, sum_ = 0;  // of head(); sum_: this thread's part
};

__global__ void __launch_bounds__(kWarps * 32) attend_tiles(const __grid_constant__ LatentArguments<Brain> a) {
  extern __shared__ __align__(16) char memory[];
  const int length = a.lengths[blockIdx.z];
  if (length < 0 || length >= a.capacity) return;
  const LatentSplits splits = latent_splits(length + 1);
  if (static_cast<int>(blockIdx.x) < splits.used) Block(a, *reinterpret_cast<Shared*>(memory), length, splits).run();
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
