// One query a sequence against keys and values in pages: pieces of some positions of a sequence and a key head with up to
// eight of its query heads. How a sequence is split depends on its length alone, and what is added up goes in the order of
// attention_order.h, so a sequence's results have the same bits whatever other sequences are in the batch.
//
// Where there are many pieces, a warp is alone with each: it asks for tiles of 16 tokens one ahead of the one that it
// multiplies, across the ends of its pieces, so that memory never waits. A tile alone takes about a microsecond, so few
// pieces would leave the GPU idle for as many as a piece has tiles: of few a block takes each. Its warps ask for and score
// tiles at the same time; then some of them add up the tiles' values in their order, each some columns, so that the
// bits are those of one warp. A second kernel merges the splits of a sequence, always in their order. (One kernel that merges by
// its last arrival is slower: each arrival waits until all memory of its warp is seen everywhere, also the tiles that are
// on their way.)
#include "backends/cuda/attention/paged_heads.h"

namespace temper::backends {
namespace {

constexpr int kStages = 2;      // tiles of a warp
constexpr int kMostWarps = 12;  // of a block
constexpr int kSumWarps = 4;    // that add up, of a block that shares a piece
constexpr int kFewPieces = 2;   // of a block: more are taken by warps alone

// The tiles of a warp's pieces of work, one after the other, as copies that are asked for. What the next step needs is
// read a step before, so that nothing waits for it.
template <int kDim>
class Asker {
 public:
  __device__ Asker(const PagedArguments& a, const PagedUnits& units, int first, int step, int end)
      : a_(a), units_(units), source_(a), unit_(first), step_(step), end_(end) {
    if (unit_ < end_) following_ = item_of(unit_);
    begin();
  }

  // What the kernel in front writes is waited for, not what was there before it: the plan, and tokens of earlier passes.
  __device__ void ask_first(PagedKeys<kDim>& tile) {
    const bool early = __all_sync(0xffffffffu, unit_ < end_ && source_.is_old(position_));
    if (early) ask(tile);
    wait_for_inputs();
    if (!early) ask(tile);
  }

  __device__ void ask(PagedKeys<kDim>& tile) {
    if (unit_ < end_) {
      source_.ask(tile, position_, page_);
      position_ += kPieceTokens;
      if (position_ >= source_.item().end) {
        unit_ += step_;
        begin();
      } else {
        page_ = source_.page_at(position_);
      }
    }
    commit_chunks();
  }

 private:
  __device__ PagedItem item_of(int unit) const { return units_.item(unit / units_.of_item(a_)); }
  __device__ void begin() {
    if (unit_ >= end_) return;
    source_.begin(following_, unit_ % units_.of_item(a_) / units_.parts);
    position_ = following_.begin;
    if (unit_ + step_ < end_) following_ = item_of(unit_ + step_);
    page_ = source_.page_at(position_);
  }

  const PagedArguments& a_;
  const PagedUnits& units_;
  TokenSource<kDim> source_;
  int unit_, step_, end_;
  PagedItem following_{};
  int position_ = 0, page_ = 0;
};

// Each warp has pieces of its own. Neighbours go to different blocks: what is left over in the end is spread over all of them.
template <int kDim>
__device__ void attend_alone(const PagedArguments& a, const PagedUnits& units, PagedKeys<kDim>* all_tiles) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  PagedKeys<kDim>* const tiles = all_tiles + warp * kStages;
  const int first = warp * gridDim.x + blockIdx.x, step = gridDim.x * warps, end = units.pieces(a);
  Asker<kDim> asker(a, units, first, step, end);
  static_assert(kStages == 2, "one tile is asked for ahead");
  asker.ask_first(tiles[0]);
  int stage = 0;
  PagedItem next = first < end ? units.item(first / units.of_item(a)) : PagedItem();
  for (int unit = first; unit < end; unit += step) {
    const PagedPiece piece(a, units, next, unit);
    if (unit + step < end) next = units.item((unit + step) / units.of_item(a));
    const PieceQueries<kDim> queries(a, piece);
    PieceSums<kDim, kDim / 16> sums;
    for (int position = piece.item.begin; position < piece.item.end; position += kPieceTokens) {
      wait_chunks<kStages - 2>();
      __syncwarp();
      asker.ask(tiles[(stage + kStages - 1) % kStages]);
      const PagedKeys<kDim>& tile = tiles[stage];
      stage = (stage + 1) % kStages;
      if (piece.keeps_token(position)) keep_new_token(a, piece, tile, position);
      float scores[4];
      queries.score(scores, tile, position);
      sums.add(scores, largest_of(scores), tile);
    }
    sums.store(a, units, piece);
  }
}

// Of a tile, in the order of its lanes.
struct TileScores {
  float4 values[32];
  float2 largest[4];
};

// A block's share of few pieces, each taken by all of its warps.
template <int kDim>
class SharedPieces {
 public:
  // `tiles`, and behind them their scores: kStages of each warp.
  __device__ SharedPieces(const PagedArguments& a, const PagedUnits& units, PagedKeys<kDim>* tiles)
      : a_(a),
        units_(units),
        tiles_(tiles),
        scores_(reinterpret_cast<TileScores*>(tiles + tiles_at_once())),
        source_(a) {}

  __device__ void run() {
    bool ready = false;
    for (int unit = blockIdx.x; unit < units_.pieces(a_); unit += gridDim.x) {
      const PagedPiece piece(a_, units_, units_.item(unit / units_.of_item(a_)), unit);
      source_.begin(piece.item, piece.kv_head);
      ask(piece.item.begin, true);
      if (!ready) wait_for_inputs();
      ready = true;
      attend(piece);
    }
    if (!ready) wait_for_inputs();
  }

 private:
  static constexpr int kOwn = kDim / 16 / kSumWarps;

  __device__ static int warp() { return threadIdx.x / 32; }
  __device__ static int tiles_at_once() { return static_cast<int>(blockDim.x) / 32 * kStages; }

  // Of this warp's tiles those that are old, or the others; `first`: the position of the block's first.
  __device__ void ask(int first, bool old) {
    for (int own = warp(); own < tiles_at_once(); own += blockDim.x / 32) {
      const int position = first + own * kPieceTokens;
      if (position < source_.item().end && source_.is_old(position) == old)
        source_.ask(tiles_[own], position, source_.page_at(position));
    }
    commit_chunks();
  }

  __device__ void attend(const PagedPiece& piece) {
    const PieceQueries<kDim> queries(a_, piece);
    PieceSums<kDim, kOwn> sums(warp() * kOwn * 16);
    const int step = tiles_at_once() * kPieceTokens;
    for (int first = piece.item.begin; first < piece.item.end; first += step) {
      if (first != piece.item.begin) ask(first, true);
      ask(first, false);
      wait_chunks<0>();
      __syncwarp();
      for (int own = warp(); own < tiles_at_once(); own += blockDim.x / 32)
        score(piece, queries, own, first + own * kPieceTokens);
      __syncthreads();
      if (warp() < kSumWarps)
        for (int i = 0; i < tiles_at_once() && first + i * kPieceTokens < piece.item.end; ++i) add(sums, i);
      __syncthreads();
    }
    if (warp() < kSumWarps) sums.store(a_, units_, piece);
  }
  __device__ void score(const PagedPiece& piece, const PieceQueries<kDim>& queries, int own, int position) {
    if (position >= piece.item.end) return;
    if (piece.keeps_token(position)) keep_new_token(a_, piece, tiles_[own], position);
    float scores[4];
    queries.score(scores, tiles_[own], position);
    const float2 largest = largest_of(scores);
    scores_[own].values[lane()] = {scores[0], scores[1], scores[2], scores[3]};
    if (lane() < 4) scores_[own].largest[lane()] = largest;
  }
  __device__ void add(PieceSums<kDim, kOwn>& sums, int tile) {
    const float4 s = scores_[tile].values[lane()];
    float scores[4] = {s.x, s.y, s.z, s.w};
    sums.add(scores, scores_[tile].largest[lane() % 4], tiles_[tile]);
  }

  const PagedArguments& a_;
  const PagedUnits& units_;
  PagedKeys<kDim>* const tiles_;
  TileScores* const scores_;
  TokenSource<kDim> source_;
};

template <int kDim>
__global__ void __launch_bounds__(kMostWarps * 32, 1) attend(const __grid_constant__ PagedArguments a,
                                                          const __grid_constant__ PagedUnits units) {
  extern __shared__ __align__(16) char memory[];
  const auto tiles = reinterpret_cast<PagedKeys<kDim>*>(memory);
  if (blockDim.x >= kSumWarps * 32 && units.pieces(a) <= static_cast<int>(gridDim.x) * kFewPieces)
    SharedPieces<kDim>(a, units, tiles).run();
  else
    attend_alone(a, units, tiles);
}

// What the splits of a sequence's heads give together: a warp for each head.
constexpr int kMergeWarps = 8;
template <int kDim>
__global__ void __launch_bounds__(kMergeWarps * 32) merge(const __grid_constant__ PagedArguments a,
                                                          const __grid_constant__ PagedUnits units) {
  constexpr int kPairs = kDim / 64;  // of a lane
  wait_for_inputs();
  if (static_cast<int>(blockIdx.x) >= units.items.entries()) return;
  const PagedItem item = units.item(blockIdx.x);
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

template <int kDim>
void launch(const PagedArguments& a, const PagedUnits& units, Device device) {
  const int64_t own = int64_t{sizeof(PagedKeys<kDim>) + sizeof(TileScores)} * kStages;
  const int64_t warps = std::clamp<int64_t>(scratch_bytes(device) / own, 1, kMostWarps);
  const auto shared = static_cast<size_t>(warps * own);
  allow_scratch(attend<kDim>, shared);
  int at_once = 0;
  device::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, attend<kDim>, static_cast<int>(warps) * 32, shared),
                "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int64_t blocks = std::min<int64_t>(int64_t{units.items.most} * a.kv_heads * units.parts,
                                           int64_t{std::max(at_once, 1)} * device::multiprocessors(device));
  DependentLaunch{"paged_attention", device, static_cast<unsigned>(blocks), static_cast<unsigned>(warps * 32), shared}(
      attend<kDim>, a, units);
  if (!units.splits) return;
  const dim3 merges(static_cast<unsigned>(units.items.most), static_cast<unsigned>((a.heads + kMergeWarps - 1) / kMergeWarps));
  DependentLaunch{"paged_attention", device, merges, kMergeWarps * 32}(merge<kDim>, a, units);
}

}  // namespace

void attend_paged_items(const PagedArguments& a, const PagedPlan<PagedItem>& items, bool splits, Device device) {
  const int64_t parts = (a.heads / a.kv_heads + kPieceHeads - 1) / kPieceHeads;
  const PagedWorkspace own(splits ? items.most : 0, a.heads, a.dim, device);
  const PagedUnits units{items, splits, own.partial.data<float>(), own.stats.data<float>(), static_cast<int>(parts)};
  if (a.dim <= 64) return launch<64>(a, units, device);
  if (a.dim <= 128) return launch<128>(a, units, device);
  launch<256>(a, units, device);
}

}  // namespace temper::backends
