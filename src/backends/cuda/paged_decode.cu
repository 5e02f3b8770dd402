// One query a sequence against keys and values in pages. A warp is alone with its work: some positions of a sequence
// and a key head with up to eight of its query heads. It asks for tiles of 16 tokens one ahead of the one that it
// multiplies, across the ends of its pieces of work, so that memory never waits. Scores are tokens by heads, results
// elements by heads: eight heads are the narrow side of the tensor cores' products. A second kernel merges the splits of
// a sequence, always in their order; how it is split depends on its length alone. So a sequence's results have the same
// bits whatever other sequences are in the batch. (One kernel that merges by its last arrival is slower: each arrival waits until all
// memory of its warp is seen everywhere, also the tiles that are on their way.)
#include "backends/cuda/attention_order.h"
#include "backends/gpu/dependent_launch.h"

namespace temper::backends {
namespace {

using Brain = __nv_bfloat16;

constexpr int kTokens = 16, kStages = 2, kHeads = 8, kMostWarps = 12;

struct Units {
  PagedPlan<PagedItem> items;
  float *partial, *stats;  // PagedWorkspace
  int parts;               // of a key head's query heads
};

template <int kDim>
struct Tile {
  Brain keys[kTokens][kDim + 8], values[kTokens][kDim + 8];
};

__device__ inline PagedItem read_item(const Units& units, int index) {
  const int4* const from = reinterpret_cast<const int4*>(&units.items.at(index));
  PagedItem item;
  reinterpret_cast<int4*>(&item)[0] = __ldg(from);
  reinterpret_cast<int4*>(&item)[1] = __ldg(from + 1);
  return item;
}

// The tiles of a warp's pieces of work, one after the other, as copies that are asked for. What the next step needs is
// read a step before, so that nothing waits for it.
template <int kDim>
class Asker {
 public:
  static constexpr int kChunks = kDim / 8;  // of a row

  __device__ Asker(const PagedArguments& a, const Units& units, int first, int step, int end)
      : a_(a), units_(units), step_of_token_(a.kv_heads * a.dim), unit_(first), step_(step), end_(end) {
    if (unit_ < end_) following_ = item_of(unit_);
    begin();
  }

  // What the kernel in front writes is waited for, not what was there before it: the plan, and tokens of earlier passes.
  __device__ void ask_first(Tile<kDim>& tile) {
    const bool early = __all_sync(0xffffffffu, is_old());
    if (early) ask(tile);
    wait_for_inputs();
    if (!early) ask(tile);
  }

  __device__ void ask(Tile<kDim>& tile) {
    if (unit_ < end_) {
      is_old() ? ask_together(tile) : ask_each(tile);
      position_ += kTokens;
      if (position_ >= item_.end) {
        unit_ += step_;
        begin();
      } else {
        look_up();
      }
    }
    commit_chunks();
  }

 private:
  static constexpr int kCopies = kTokens * kChunks / 32;  // of keys, and of values, by a lane

  // Whether the next tile has only tokens of earlier passes, whose keys and values are where they stay.
  __device__ bool is_old() const { return unit_ < end_ && lie_together() && position_ + kTokens <= item_.held; }

  // Whether a tile's tokens, all of them there, are in one page.
  __device__ bool lie_together() const {
    return a_.page_shift >= 4 && a_.dim == kDim && position_ % kTokens == 0 && position_ + kTokens <= item_.end;
  }
  __device__ void ask_together(Tile<kDim>& tile) const {
    const int place = (page_ << a_.page_shift) + (position_ & ((1 << a_.page_shift) - 1));
    const int row = lane() / kChunks, column = lane() % kChunks * 8, step = 32 / kChunks * step_of_token_;
    const int64_t at = int64_t{place + row} * step_of_token_ + kv_head_ * kDim + column;
    const Brain *k = a_.keys + at, *v = a_.values + at;
    const uint32_t to = shared_address(&tile.keys[row][column]);
    constexpr uint32_t kRows = 32 / kChunks * sizeof(tile.keys[0]), kValues = sizeof(tile.keys);
#pragma unroll
    for (int i = 0; i < kCopies; ++i, k += step, v += step) {
      load_chunk(to + i * kRows, k);
      load_chunk(to + kValues + i * kRows, v);
    }
  }
  __device__ void ask_each(Tile<kDim>& tile) const {
    const int token = position_ + lane() % kTokens;
    const int own = token < item_.end ? static_cast<int>(a_.place_in(page_, token)) : 0;
    const int64_t head = int64_t{kv_head_} * a_.dim;
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      const int row = (i * 32 + lane()) / kChunks, column = (i * 32 + lane()) % kChunks * 8;
      const int64_t place = __shfl_sync(0xffffffffu, own, row);
      const bool there = position_ + row < item_.end && column < a_.dim;
      const int64_t at = place * step_of_token_ + head + (there ? column : 0);
      const Brain *k = a_.keys + at, *v = a_.values + at;
      if (position_ + row == item_.held && there) {  // the new token comes from its own place
        k = a_.k + item_.row * a_.k_stride + head + column;
        v = a_.v + item_.row * a_.v_stride + head + column;
      }
      load_chunk(shared_address(&tile.keys[row][column]), k, there ? 16 : 0);
      load_chunk(shared_address(&tile.values[row][column]), v, there ? 16 : 0);
    }
  }
  __device__ int heads_and_parts() const { return a_.kv_heads * units_.parts; }
  __device__ PagedItem item_of(int unit) const { return read_item(units_, unit / heads_and_parts()); }
  __device__ void begin() {
    if (unit_ >= end_) return;
    item_ = following_;
    kv_head_ = unit_ % heads_and_parts() / units_.parts;
    position_ = item_.begin;
    if (unit_ + step_ < end_) following_ = item_of(unit_ + step_);
    look_up();
  }
  __device__ void look_up() {
    const int token = position_ + lane() % kTokens;
    if (token < item_.end) page_ = a_.page_of(item_.sequence, token);
  }

  const PagedArguments& a_;
  const Units& units_;
  const int step_of_token_;
  int unit_, step_, end_;
  PagedItem item_{}, following_{};
  int kv_head_ = 0, position_ = 0, page_ = 0;
};

// What the splits of a sequence's heads give together: a warp for each head.
constexpr int kMergeWarps = 8;
template <int kDim>
__global__ void __launch_bounds__(kMergeWarps * 32) merge(const __grid_constant__ PagedArguments a,
                                                          const __grid_constant__ Units units) {
  constexpr int kPairs = kDim / 64;  // of a lane
  wait_for_inputs();
  if (static_cast<int>(blockIdx.x) >= units.items.entries()) return;
  const PagedItem item = read_item(units, blockIdx.x);
  const int head = blockIdx.y * kMergeWarps + threadIdx.x / 32;
  if (item.number != item.first || item.splits == 1 || head >= a.heads) return;
  float largest = kNoPagedScore, sum = 0;
  float2 totals[kPairs] = {};
#pragma unroll 4
  for (int s = 0; s < item.splits; ++s) {
    const int64_t split = int64_t{item.first + s} * a.heads + head;
    const float2 stats = *reinterpret_cast<const float2*>(units.stats + split * 2);
    float2 own[kPairs];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const int d = p * 64 + lane() * 2;
      own[p] = d < a.dim ? *reinterpret_cast<const float2*>(units.partial + split * a.dim + d) : float2{0, 0};
    }
    const Fold fold = Fold::of(largest, stats.x);
    sum = fold(sum, stats.y);
#pragma unroll
    for (int p = 0; p < kPairs; ++p) totals[p] = {fold(totals[p].x, own[p].x), fold(totals[p].y, own[p].y)};
  }
  const float share = ordered_share(sum, a.sink(head, largest));
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int d = p * 64 + lane() * 2;
    if (d < a.dim)
      store_pair(a.y + (int64_t{item.row} * a.heads + head) * a.dim + d, __fmul_rn(totals[p].x, share),
                 __fmul_rn(totals[p].y, share));
  }
}

// Up to eight query heads of one piece of work, and what they have found of it, in the registers of a warp.
template <int kDim>
class Heads {
 public:
  __device__ Heads(const PagedArguments& a, const PagedItem& item, int first, int count)
      : a_(a), item_(item), first_(first), count_(count) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = k * 16 + half * 8 + lane() % 4 * 2;
        const Brain* const from = a.q + item.row * a.q_stride + int64_t{first + lane() / 4} * a.dim + column;
        q_[k][half] = lane() / 4 < count && column < a.dim ? *reinterpret_cast<const uint32_t*>(from) : 0;
      }
  }

  __device__ void attend(const Tile<kDim>& tile, int position) {
    float weights[4];
    score(weights, tile, position);
    rescale(weights);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i] = ordered_weight(weights[i], largest_[i % 2]);
      sums_[i % 2] = __fadd_rn(sums_[i % 2], weights[i]);
    }
    const uint32_t upper = turn(pair_of(weights[0], weights[1])), lower = turn(pair_of(weights[2], weights[3]));
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t values[4];
      view(tile.values).left_turned(values, k * 16, 0);
      multiply(y_[k], values, upper, lower);
    }
  }

  // The result where the sequence is one piece, else this piece's part of it.
  __device__ void store(const Units& units) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        sums_[h] = __fadd_rn(sums_[h], __shfl_xor_sync(0xffffffffu, sums_[h], other));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = first_ + sum_column(h);
      if (sum_column(h) >= count_) continue;
      const float share = item_.splits == 1 ? ordered_share(sums_[h], a_.sink(head, largest_[h])) : 1;
      const int64_t split = int64_t{item_.number} * a_.heads + head;
      if (item_.splits > 1 && lane() < 4) {
        units.stats[split * 2] = largest_[h];
        units.stats[split * 2 + 1] = sums_[h];
      }
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = k * 16 + sum_row(half * 2);
          if (column >= a_.dim) continue;
          const float value = __fmul_rn(y_[k][h + half * 2], share);
          if (item_.splits == 1)
            a_.y[(int64_t{item_.row} * a_.heads + head) * a_.dim + column] = narrow<Brain>(value);
          else
            units.partial[split * a_.dim + column] = value;
        }
    }
  }

 private:
  static constexpr int kSteps = kDim / 16;

  // -infinity where a token is not seen.
  __device__ void score(float (&to)[4], const Tile<kDim>& tile, int position) const {
    float scores[2][4] = {};  // of even and odd steps: products do not wait for one another
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t keys[4];
      view(tile.keys).left(keys, 0, k * 16);
      multiply(scores[k % 2], keys, q_[k][0], q_[k][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = ordered_score(scores[0][i], scores[1][i], a_.scale);
    if (position + kTokens > item_.end || item_.leaves_out(position, a_.window))
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (item_.leaves_out(position + sum_row(i), a_.window)) to[i] = -INFINITY;
  }

  // Sums are relative to the largest score so far.
  __device__ void rescale(const float (&scores)[4]) {
    float most[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) most[h] = fmaxf(largest_[h], fmaxf(scores[h], scores[h + 2]));
#pragma unroll
    for (int other = 4; other < 32; other *= 2)
#pragma unroll
      for (int h = 0; h < 2; ++h) most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], other));
    if (!__any_sync(0xffffffffu, most[0] > largest_[0] || most[1] > largest_[1])) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float shrink = ordered_weight(largest_[h], most[h]);
      largest_[h] = most[h];
      sums_[h] = __fmul_rn(sums_[h], shrink);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        y_[k][h] = __fmul_rn(y_[k][h], shrink);
        y_[k][h + 2] = __fmul_rn(y_[k][h + 2], shrink);
      }
    }
  }

  const PagedArguments& a_;
  const PagedItem item_;
  const int first_, count_;
  uint32_t q_[kSteps][2];    // of head lane / 4
  float y_[kSteps][4] = {};  // elements by heads
  float largest_[2] = {kNoPagedScore, kNoPagedScore}, sums_[2] = {};  // of heads sum_column() and the next
};

// Once for each key head: the new token, which is row `row` of the tile.
template <int kDim>
__device__ inline void keep_new_token(const PagedArguments& a, const PagedItem& item, int kv_head,
                                      const Tile<kDim>& tile, int row) {
  const int64_t to = a.row_of(a.place_in(a.page_of(item.sequence, item.held), item.held), kv_head);
  for (int column = lane() * 8; column < a.dim; column += 256) {
    store_pack(a.keys + to + column, load_pack<Brain, 8>(&tile.keys[row][column]));
    store_pack(a.values + to + column, load_pack<Brain, 8>(&tile.values[row][column]));
  }
}

template <int kDim>
__global__ void __launch_bounds__(kMostWarps * 32) attend(const __grid_constant__ PagedArguments a,
                                                          const __grid_constant__ Units units) {
  extern __shared__ __align__(16) char memory[];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  Tile<kDim>* const tiles = reinterpret_cast<Tile<kDim>*>(memory) + warp * kStages;
  // Neighbours go to different blocks: what is left over in the end is spread over all of them.
  const int first = warp * gridDim.x + blockIdx.x, step = gridDim.x * warps;
  const int end = units.items.entries() * a.kv_heads * units.parts;
  Asker<kDim> asker(a, units, first, step, end);
  static_assert(kStages == 2, "one tile is asked for ahead");
  asker.ask_first(tiles[0]);
  int stage = 0;
  const int pieces = a.kv_heads * units.parts;
  PagedItem next = first < end ? read_item(units, first / pieces) : PagedItem();
  for (int unit = first; unit < end; unit += step) {
    const int piece = unit % pieces, kv_head = piece / units.parts, part = piece % units.parts;
    const PagedItem item = next;
    if (unit + step < end) next = read_item(units, (unit + step) / pieces);
    Heads<kDim> heads(a, item, kv_head * a.group() + part * kHeads, min(kHeads, a.group() - part * kHeads));
    for (int position = item.begin; position < item.end; position += kTokens) {
      wait_chunks<kStages - 2>();
      __syncwarp();
      asker.ask(tiles[(stage + kStages - 1) % kStages]);
      const Tile<kDim>& tile = tiles[stage];
      stage = (stage + 1) % kStages;
      if (part == 0 && item.end == item.held + 1 && position + kTokens >= item.end)
        keep_new_token(a, item, kv_head, tile, item.held - position);
      heads.attend(tile, position);
    }
    heads.store(units);
  }
}

template <int kDim>
void launch(const PagedArguments& a, const Units& units, Device device) {
  const int64_t own = int64_t{sizeof(Tile<kDim>)} * kStages;
  const int64_t warps = std::clamp<int64_t>(scratch_bytes(device) / own, 1, kMostWarps);
  const auto shared = static_cast<size_t>(warps * own);
  allow_scratch(attend<kDim>, shared);
  int at_once = 0;
  device::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, attend<kDim>, static_cast<int>(warps) * 32, shared),
                "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int64_t most = (int64_t{units.items.most} * a.kv_heads * units.parts + warps - 1) / warps;
  const int64_t blocks = std::min<int64_t>(most, int64_t{std::max(at_once, 1)} * device::multiprocessors(device));
  DependentLaunch{"paged_attention", device, static_cast<unsigned>(blocks), static_cast<unsigned>(warps * 32), shared}(
      attend<kDim>, a, units);
  const dim3 merges(static_cast<unsigned>(units.items.most), static_cast<unsigned>((a.heads + kMergeWarps - 1) / kMergeWarps));
  DependentLaunch{"paged_attention", device, merges, kMergeWarps * 32}(merge<kDim>, a, units);
}

}  // namespace

void attend_paged_items(const PagedArguments& a, const PagedPlan<PagedItem>& items, Device device) {
  const int64_t parts = (a.heads / a.kv_heads + kHeads - 1) / kHeads;
  const PagedWorkspace own(items.most, a.heads, a.dim, device);
  const Units units{items, own.partial.data<float>(), own.stats.data<float>(), static_cast<int>(parts)};
  if (a.dim <= 64) return launch<64>(a, units, device);
  if (a.dim <= 128) return launch<128>(a, units, device);
  launch<256>(a, units, device);
}

}  // namespace temper::backends
