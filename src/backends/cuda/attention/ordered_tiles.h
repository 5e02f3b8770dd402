#pragma once
#include "backends/cuda/attention/attention_order.h"

// Several adjacent queries, of parts of prompts or of rows of training: a block has 64 of them, of one head,
// and meets keys in tiles, of which one is copied while the other is multiplied (FlashAttention-2,
// arXiv:2307.08691). Sums have the order of attention_order.h.
namespace temper::backends {

inline constexpr int kTileWarps = 4;
static_assert(kPagedTileRows == kTileWarps * 16);

// Where the keys and values of a tile's tokens are, in elements of a head.
struct InPages {
  const PagedArguments& a;
  const PagedTile& tile;

  __device__ int place(int token) const {
    return static_cast<int>(a.place_in(a.page_of(tile.sequence, token), token));
  }
  __device__ int64_t key(int place, int kv_head) const { return a.row_of(place, kv_head); }
  __device__ int64_t value(int place, int kv_head) const { return a.row_of(place, kv_head); }
};

template <int kDim, int kKeys>
struct SharedTiles {
  __nv_bfloat16 keys[2][kKeys][kDim + 8], values[2][kKeys][kDim + 8];
};

// Copies of a tile's keys and values: a warp's rows of each, of which every lane knows where one lies. Places
// are looked up a tile before they are needed.
template <int kDim, int kKeys, class Source>
class TileCopies {
 public:
  __device__ TileCopies(const PagedArguments& a, const PagedTile& tile, int kv_head, int begin)
      : a_(a), source_{a, tile}, kv_head_(kv_head), next_(begin), end_(tile.position + tile.rows) {
    look_up();
  }

  // The next tile into `stage`, where there is one.
  __device__ void ask(SharedTiles<kDim, kKeys>& s, int stage) {
    if (next_ < end_) {
      const int first = threadIdx.x / 32 * kOwn, column = lane() % kChunks * 8;
#pragma unroll
      for (int i = 0; i < kOwn * kChunks / 32; ++i) {
        const int row = i * (32 / kChunks) + lane() / kChunks, place = __shfl_sync(0xffffffffu, place_, row);
        const bool there = place >= 0 && column < a_.dim;
        const int64_t key = there ? source_.key(place, kv_head_) + column : 0,
                      value = there ? source_.value(place, kv_head_) + column : 0;
        load_chunk(shared_address(&s.keys[stage][first + row][column]), a_.keys + key, there ? 16 : 0);
        load_chunk(shared_address(&s.values[stage][first + row][column]), a_.values + value, there ? 16 : 0);
      }
      next_ += kKeys;
      look_up();
    }
    commit_chunks();
  }

 private:
  static constexpr int kOwn = kKeys / kTileWarps, kChunks = kDim / 8;
  static_assert(32 % kChunks == 0);

  __device__ void look_up() {
    const int token = next_ + threadIdx.x / 32 * kOwn + lane() % kOwn;
    place_ = token < end_ ? source_.place(token) : -1;
  }

  const PagedArguments& a_;
  const Source source_;
  const int kv_head_;
  int next_, end_, place_ = -1;
};

// The sums of a warp's 16 rows.
template <int kDim>
class OrderedRows {
 public:
  static constexpr int kColumns = kDim / 8, kSteps = kDim / 16;

  __device__ OrderedRows(const PagedArguments& a, const PagedTile& tile, int head, int first_row)
      : a_(a), tile_(tile), head_(head), first_row_(first_row) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first_row + sum_row(i % 2 * 2), column = k * 16 + i / 2 * 8 + sum_column();
        const __nv_bfloat16* const from =
            a.q + int64_t{tile.row + row} * a.q_stride + int64_t{head} * a.dim + column;
        queries_[k][i] = row < tile.rows && column < a.dim ? *reinterpret_cast<const uint32_t*>(from) : 0;
      }
  }

  // The kOrderedKeys keys at position `key`, which are in rows from `at` on.
  template <int kPitch>
  __device__ void meet(TileView<kPitch> keys, TileView<kPitch> values, int at, int key) {
    const int first = tile_.position + first_row_;  // the position of the warp's first row
    if (key > first + 15 || (a_.window > 0 && first - key - kOrderedKeys + 1 >= a_.window)) return;
    float sums[2][2][4] = {};  // of even and odd steps
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      multiply_row(sums[k % 2], queries_[k],
                   [&](uint32_t(&b)[4], int n) { keys.right_turned(b, k * 16, at + n); });
    float weights[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[n][i] = ordered_score(sums[0][n][i], sums[1][n][i], a_.scale);
    if (key + kOrderedKeys - 1 > first || (a_.window > 0 && first + 15 - key >= a_.window))
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int distance = first + sum_row(i) - key - n * 8 - sum_column(i);
          if (distance < 0 || (a_.window > 0 && distance >= a_.window)) weights[n][i] = -INFINITY;
        }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest_[half];
#pragma unroll
      for (const auto& each : weights) most = fmaxf(most, fmaxf(each[half * 2], each[half * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      if (__any_sync(0xffffffffu, most > largest_[half])) shrink(half, most);
#pragma unroll
      for (auto& each : weights)
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          float& weight = each[half * 2 + side];
          weight = ordered_weight(weight, most);
          sums_[half][side] = __fadd_rn(sums_[half][side], weight);
        }
    }
    uint32_t left[4];
    left_of_sums(left, weights[0], weights[1]);
    multiply_row(y_, left, [&](uint32_t(&b)[4], int n) { values.right(b, at, n); });
  }

  // A part ends.
  __device__ void fold() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Fold fold = Fold::of(total_largest_[half], largest_[half]);
      total_sums_[half] = fold(total_sums_[half], own_sum(half));
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          total_y_[n][i] = fold(total_y_[n][i], y_[n][i]);
          y_[n][i] = 0;
        }
      largest_[half] = kNoPagedScore;
      sums_[half][0] = sums_[half][1] = 0;
    }
  }

  // After fold().
  __device__ void store() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row_ + sum_row(half * 2);
      if (row >= tile_.rows) continue;
      const float sink = a_.sink(head_, total_largest_[half]), share = ordered_share(total_sums_[half], sink);
      __nv_bfloat16* const to = a_.y + (int64_t{tile_.row + row} * a_.heads + head_) * a_.dim;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int column = n * 8 + sum_column();
        if (column < a_.dim)
          store_pair(to + column, __fmul_rn(total_y_[n][half * 2], share),
                     __fmul_rn(total_y_[n][half * 2 + 1], share));
      }
      if (a_.logs != nullptr && lane() % 4 == 0)
        a_.logs[a_.log_place(tile_.row + row, head_)] =
            (total_largest_[half] + log2f(total_sums_[half] + sink)) / kLog2E;
    }
  }

 private:
  __device__ void shrink(int half, float most) {
    const float factor = ordered_weight(largest_[half], most);
    largest_[half] = most;
    for (float& sum : sums_[half]) sum = __fmul_rn(sum, factor);
#pragma unroll
    for (auto& each : y_)
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) each[i] = __fmul_rn(each[i], factor);
  }
  // Of every eighth key each, as far as this lane has them; the eight in the order of a butterfly.
  __device__ float own_sum(int half) const {
    float sum = __fadd_rn(sums_[half][0], sums_[half][1]);
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
    return __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
  }

  const PagedArguments& a_;
  const PagedTile& tile_;
  const int head_, first_row_;
  uint32_t queries_[kSteps][4];  // [16, 16] of a product each
  // Of the part that the keys are in, of rows sum_row(0) and sum_row(2): weights of even and odd columns.
  float y_[kColumns][4] = {}, largest_[2] = {kNoPagedScore, kNoPagedScore}, sums_[2][2] = {};
  // Of all parts before it.
  float total_y_[kColumns][4] = {}, total_largest_[2] = {kNoPagedScore, kNoPagedScore}, total_sums_[2] = {};
};

template <int kDim, int kKeys, class Source>
__global__ void __launch_bounds__(kTileWarps * 32, kDim <= 64    ? 3
                                                   : kDim <= 128 ? 2
                                                                 : 1)
    attend_tile(const __grid_constant__ PagedArguments a, const PagedPlan<PagedTile> tiles) {
  extern __shared__ __align__(16) char memory[];
  auto& s = *reinterpret_cast<SharedTiles<kDim, kKeys>*>(memory);
  if (static_cast<int>(blockIdx.x) >= tiles.entries()) return;
  const PagedTile tile = tiles.at(blockIdx.x);
  const int head = blockIdx.y, end = tile.position + tile.rows;  // of the keys that are seen
  const int begin = a.window == 0 ? 0 : max(0, tile.position - a.window + 1) / kKeys * kKeys;
  TileCopies<kDim, kKeys, Source> copies(a, tile, head / a.group(), begin);
  copies.ask(s, 0);
  OrderedRows<kDim> rows(a, tile, head, threadIdx.x / 32 * 16);
  int part_end = split_end(begin);
  for (int key = begin, stage = 0; key < end; key += kKeys, stage ^= 1) {
    wait_chunks<0>();
    __syncthreads();  // all are done with the other stage
    copies.ask(s, stage ^ 1);
    if (key == part_end) {
      rows.fold();
      part_end = split_end(key);
    }
#pragma unroll
    for (int at = 0; at < kKeys; at += kOrderedKeys)
      rows.meet(view(s.keys[stage]), view(s.values[stage]), at, key + at);
  }
  rows.fold();
  rows.store();
}

template <class Source>
void launch_tiles(const PagedArguments& a, const PagedPlan<PagedTile>& tiles, const char* name,
                  Device device) {
  const auto launch = [&]<int kDim, int kKeys>() {
    const size_t shared = sizeof(SharedTiles<kDim, kKeys>);
    allow_scratch(attend_tile<kDim, kKeys, Source>, shared);
    const dim3 grid(static_cast<unsigned>(tiles.most), static_cast<unsigned>(a.heads));
    attend_tile<kDim, kKeys, Source><<<grid, kTileWarps * 32, shared, device::stream(device)>>>(a, tiles);
    device::check_launch(name);
  };
  if (a.dim <= 64) return launch.template operator()<64, 64>();
  if (a.dim <= 128) return launch.template operator()<128, 64>();
  launch.template operator()<256, 32>();
}

}  // namespace temper::backends
