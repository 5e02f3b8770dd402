// Parts of prompts against keys and values in pages. A block has 64 queries of one head and meets keys in tiles, of
// which one is copied while the other is multiplied (FlashAttention-2, arXiv:2307.08691). Which keys a tile has and in
// which order they are summed depends on the positions alone.
#include "backends/cuda/paged_attention.h"
#include "backends/gpu/matrix_products.h"

namespace temper::backends {
namespace {

using Brain = __nv_bfloat16;

constexpr int kWarps = 4, kRows = kPagedTileRows;
static_assert(kRows == kWarps * 16);

template <int kDim, int kKeys>
struct Shared {
  Brain keys[2][kKeys][kDim + 8], values[2][kKeys][kDim + 8];
};

// Rows of keys and values of new tokens to their places in pages.
__global__ void __launch_bounds__(kWarps * 32) write_rows(const __grid_constant__ PagedArguments a,
                                                          const PagedPlan<PagedTile> tiles) {
  if (static_cast<int>(blockIdx.x) >= tiles.entries()) return;
  const PagedTile tile = tiles.at(blockIdx.x);
  const int kv_head = blockIdx.y, chunks = a.dim / 8;
  for (int i = threadIdx.x; i < tile.rows * chunks; i += blockDim.x) {
    const int row = i / chunks, column = i % chunks * 8, token = tile.position + row;
    const int64_t to = a.row_of(a.place_in(a.page_of(tile.sequence, token), token), kv_head) + column;
    const int64_t from = int64_t{kv_head} * a.dim + column;
    store_pack(a.keys + to, load_pack<Brain, 8>(a.k + int64_t{tile.row + row} * a.k_stride + from));
    store_pack(a.values + to, load_pack<Brain, 8>(a.v + int64_t{tile.row + row} * a.v_stride + from));
  }
}

// Copies of a tile's keys and values: a warp's rows of each, of which every lane knows where one lies. Places are looked
// up a tile before they are needed.
template <int kDim, int kKeys>
class TileCopies {
 public:
  __device__ TileCopies(const PagedArguments& a, const PagedTile& tile, int kv_head, int begin)
      : a_(a), tile_(tile), kv_head_(kv_head), next_(begin) {
    look_up();
  }

  // The next tile into `stage`, where there is one.
  __device__ void ask(Shared<kDim, kKeys>& s, int stage) {
    if (next_ < tile_.position + tile_.rows) {
      const int first = threadIdx.x / 32 * kOwn, column = lane() % kChunks * 8;
#pragma unroll
      for (int i = 0; i < kOwn * kChunks / 32; ++i) {
        const int row = i * (32 / kChunks) + lane() / kChunks, place = __shfl_sync(0xffffffffu, place_, row);
        const bool there = place >= 0 && column < a_.dim;
        const int64_t at = there ? a_.row_of(place, kv_head_) + column : 0;
        load_chunk(shared_address(&s.keys[stage][first + row][column]), a_.keys + at, there ? 16 : 0);
        load_chunk(shared_address(&s.values[stage][first + row][column]), a_.values + at, there ? 16 : 0);
      }
      next_ += kKeys;
      look_up();
    }
    commit_chunks();
  }

 private:
  static constexpr int kOwn = kKeys / kWarps, kChunks = kDim / 8;
  static_assert(32 % kChunks == 0);

  __device__ void look_up() {
    const int token = next_ + threadIdx.x / 32 * kOwn + lane() % kOwn;
    const bool there = token < tile_.position + tile_.rows;
    place_ = there ? static_cast<int>(a_.place_in(a_.page_of(tile_.sequence, token), token)) : -1;
  }

  const PagedArguments& a_;
  const PagedTile& tile_;
  const int kv_head_;
  int next_, place_ = -1;
};

template <int kDim, int kKeys>
__global__ void __launch_bounds__(kWarps * 32, kDim <= 128 ? 3 : 1)
    attend(const __grid_constant__ PagedArguments a, const PagedPlan<PagedTile> tiles) {
  constexpr int kColumns = kDim / 8, kSteps = kDim / 16;
  extern __shared__ __align__(16) char memory[];
  Shared<kDim, kKeys>& s = *reinterpret_cast<Shared<kDim, kKeys>*>(memory);
  if (static_cast<int>(blockIdx.x) >= tiles.entries()) return;
  const PagedTile tile = tiles.at(blockIdx.x);
  const int head = blockIdx.y, kv_head = head / a.group(), first_row = threadIdx.x / 32 * 16;
  const int end = tile.position + tile.rows;  // of the keys that are seen
  const int begin = a.window == 0 ? 0 : max(0, tile.position - a.window + 1) / kKeys * kKeys;

  TileCopies<kDim, kKeys> copies(a, tile, kv_head, begin);
  copies.ask(s, 0);
  uint32_t queries[kSteps][4];  // [16, 16] of a product each
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + sum_row(i % 2 * 2), column = k * 16 + i / 2 * 8 + sum_column();
      const Brain* const from = a.q + int64_t{tile.row + row} * a.q_stride + int64_t{head} * a.dim + column;
      queries[k][i] = row < tile.rows && column < a.dim ? *reinterpret_cast<const uint32_t*>(from) : 0;
    }

  float y[kColumns][4] = {};
  float largest[2] = {kNoPagedScore, kNoPagedScore}, sums[2] = {};  // of rows sum_row(0) and sum_row(2)
  for (int key = begin, stage = 0; key < end; key += kKeys, stage ^= 1) {
    wait_chunks<0>();
    __syncthreads();  // all are done with the other stage
    copies.ask(s, stage ^ 1);
    const auto keys = view(s.keys[stage]), values = view(s.values[stage]);
    float scores[kKeys / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      multiply_row(scores, queries[k], [&](uint32_t(&b)[4], int n) { keys.right_turned(b, k * 16, n); });
#pragma unroll
    for (auto& each : scores)
#pragma unroll
      for (float& score : each) score *= a.scale;
    const int first = tile.position + first_row;  // the position of the warp's first row
    if (key + kKeys - 1 > first || (a.window > 0 && first + 15 - key >= a.window))
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int distance = first + sum_row(i) - key - n * 8 - sum_column(i);
          if (distance < 0 || (a.window > 0 && distance >= a.window)) scores[n][i] = -INFINITY;
        }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (const auto& each : scores) most = fmaxf(most, fmaxf(each[half * 2], each[half * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shrink = power_of_2(largest[half] - most);
      largest[half] = most;
      sums[half] *= shrink;
#pragma unroll
      for (auto& each : scores)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          each[i] = power_of_2(each[i] - most);
          sums[half] += each[i];
        }
#pragma unroll
      for (auto& each : y) {
        each[half * 2] *= shrink;
        each[half * 2 + 1] *= shrink;
      }
    }
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      uint32_t weights[4];
      left_of_sums(weights, scores[k / 8], scores[k / 8 + 1]);
      multiply_row(y, weights, [&](uint32_t(&b)[4], int n) { values.right(b, k, n); });
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
    const int row = first_row + sum_row(half * 2);
    if (row >= tile.rows) continue;
    const float share = 1 / (sums[half] + a.sink(head, largest[half]));
    Brain* const to = a.y + (int64_t{tile.row + row} * a.heads + head) * a.dim;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int column = n * 8 + sum_column();
      if (column < a.dim) store_pair(to + column, y[n][half * 2] * share, y[n][half * 2 + 1] * share);
    }
  }
}

template <int kDim, int kKeys>
void launch(const PagedArguments& a, const PagedPlan<PagedTile>& tiles, Device device) {
  const size_t shared = sizeof(Shared<kDim, kKeys>);
  allow_scratch(attend<kDim, kKeys>, shared);
  const dim3 grid(static_cast<unsigned>(tiles.most), static_cast<unsigned>(a.heads));
  attend<kDim, kKeys><<<grid, kWarps * 32, shared, device::stream(device)>>>(a, tiles);
  device::check_launch("paged_attention");
}

}  // namespace

void attend_paged_tiles(const PagedArguments& a, const PagedPlan<PagedTile>& tiles, Device device) {
  const dim3 grid(static_cast<unsigned>(tiles.most), static_cast<unsigned>(a.kv_heads));
  write_rows<<<grid, kWarps * 32, 0, device::stream(device)>>>(a, tiles);
  device::check_launch("paged_attention");
  if (a.dim <= 64) return launch<64, 64>(a, tiles, device);
  if (a.dim <= 128) return launch<128, 64>(a, tiles, device);
  launch<256, 32>(a, tiles, device);
}

}  // namespace temper::backends
