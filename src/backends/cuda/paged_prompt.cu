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
  Brain queries[kRows][kDim + 8];
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

template <int kDim, int kKeys>
__global__ void __launch_bounds__(kWarps * 32) attend(const __grid_constant__ PagedArguments a,
                                                      const PagedPlan<PagedTile> tiles) {
  constexpr int kChunks = kDim / 8, kColumns = kDim / 8;
  extern __shared__ __align__(16) char memory[];
  Shared<kDim, kKeys>& s = *reinterpret_cast<Shared<kDim, kKeys>*>(memory);
  if (static_cast<int>(blockIdx.x) >= tiles.entries()) return;
  const PagedTile tile = tiles.at(blockIdx.x);
  const int head = blockIdx.y, kv_head = head / a.group(), warp = threadIdx.x / 32;
  const int end = tile.position + tile.rows;  // of the keys that are seen
  const int begin = a.window == 0 ? 0 : max(0, tile.position - a.window + 1) / kKeys * kKeys;

  const auto ask = [&](int stage, int key) {
    for (int i = threadIdx.x; key < end && i < kKeys * kChunks; i += kWarps * 32) {
      const int row = i / kChunks, column = i % kChunks * 8, token = key + row;
      const uint32_t bytes = token < end && column < a.dim ? 16 : 0;
      const int64_t at =
          bytes == 0 ? 0 : a.row_of(a.place_in(a.page_of(tile.sequence, token), token), kv_head) + column;
      load_chunk(shared_address(&s.keys[stage][row][column]), a.keys + at, bytes);
      load_chunk(shared_address(&s.values[stage][row][column]), a.values + at, bytes);
    }
    commit_chunks();
  };
  for (int i = threadIdx.x; i < kRows * kChunks; i += kWarps * 32) {
    const int row = i / kChunks, column = i % kChunks * 8;
    const uint32_t bytes = row < tile.rows && column < a.dim ? 16 : 0;
    const int64_t at = bytes == 0 ? 0 : int64_t{tile.row + row} * a.q_stride + int64_t{head} * a.dim + column;
    load_chunk(shared_address(&s.queries[row][column]), a.q + at, bytes);
  }
  ask(0, begin);

  float y[kColumns][4] = {};
  float largest[2] = {kNoPagedScore, kNoPagedScore}, sums[2] = {};  // of rows sum_row(0) and sum_row(2)
  for (int key = begin, stage = 0; key < end; key += kKeys, stage ^= 1) {
    ask(stage ^ 1, key + kKeys);
    wait_chunks<1>();
    __syncthreads();
    const auto queries = view(s.queries);
    const auto keys = view(s.keys[stage]), values = view(s.values[stage]);
    float scores[kKeys / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      uint32_t own[4];
      queries.left(own, warp * 16, k);
      multiply_row(scores, own, [&](uint32_t(&b)[4], int n) { keys.right_turned(b, k, n); });
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = tile.position + warp * 16 + sum_row(half * 2);
      float most = largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          const int distance = position - key - n * 8 - sum_column(i);
          const bool seen = distance >= 0 && (a.window == 0 || distance < a.window);
          scores[n][i] = seen ? scores[n][i] * a.scale : kNoPagedScore;
          most = fmaxf(most, scores[n][i]);
        }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shrink = power_of_2(largest[half] - most);
      largest[half] = most;
      sums[half] *= shrink;
#pragma unroll
      for (auto& each : scores)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          // A row that has seen nothing yet: its largest is no score.
          each[i] = each[i] == kNoPagedScore ? 0.f : power_of_2(each[i] - most);
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
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
    const int row = warp * 16 + sum_row(half * 2);
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
