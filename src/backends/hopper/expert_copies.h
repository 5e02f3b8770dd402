#pragma once
#include "backends/gpu/async_copies.h"
#include "backends/hopper/expert_products.h"
#include "backends/hopper/wgmma.h"

// The tiles of experts' products, and how their operands come into shared memory (expert_products.cu).
namespace temper::backends::hopper::experts {

constexpr int kCluster = 2, kWarpgroup = 128, kConsumers = 2, kStages = 4;
constexpr int kBoxBytes = 64 * 128;  // of 64 rows
constexpr int kHalfBytes = 2 * kBoxBytes, kMatrixBytes = 2 * kHalfBytes, kRowsBytes = 2 * kBoxBytes,
              kStageBytes = kMatrixBytes + kRowsBytes;
constexpr int kStores = kStages * kStageBytes;  // each warpgroup's piece of d, twice, on its way to memory
constexpr int kPieceTokens = 16, kPieces = kMostTokens / kPieceTokens, kPieceBytes = 2 * kPieceTokens * 128;
constexpr int kFactors = kStores + kConsumers * 2 * kPieceBytes;  // each warpgroup's weights of tokens, twice
constexpr int kFactorBytes = kMostTokens * 4;
constexpr int kHeaders = kFactors + kConsumers * 2 * kFactorBytes;
constexpr int kBarriers = kHeaders + kStages * 16;
constexpr int kSharedBytes = kBarriers + 2 * kStages * 8 + kGroupBytes;  // begins at a multiple of that

// What a block's consumers compute next.
struct Header {
  int row, rows;  // of d; none are stored if there are none
  int column;
  int n;  // columns of the sums: rows, rounded up to a multiple of 8; 0: nothing is left
};

// Where the stages' copies and the warpgroups meet. A stage is full when what was copied is there, and empty
// when the warpgroups of both blocks have used what was copied into both. The first stage of a tile has its
// header.
struct Ring {
  uint32_t base;
  int stage = 0;
  uint32_t parity = 0;

  __device__ uint32_t bytes() const { return base + stage * kStageBytes; }
  __device__ uint32_t header() const { return base + kHeaders + 16 * stage; }
  __device__ uint32_t full() const { return base + kBarriers + 8 * stage; }
  __device__ uint32_t empty() const { return full() + 8 * kStages; }
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
  __device__ void set_header(const Header& h) const {
    store_shared(header(), make_uint4(static_cast<uint32_t>(h.row), static_cast<uint32_t>(h.rows),
                                      static_cast<uint32_t>(h.column), static_cast<uint32_t>(h.n)));
  }
  __device__ Header get_header() const {
    const uint4 h = load_shared(header());
    return {static_cast<int>(h.x), static_cast<int>(h.y), static_cast<int>(h.z), static_cast<int>(h.w)};
  }
};

// The tiles of a cluster, one after the other: those of an item by columns, then those of the next item.
// Whole warps ask.
class Tiles {
 public:
  struct Tile {
    Header header;  // of this block
    int expert;
    bool shared;  // both blocks use the same part of the matrix
  };

  __device__ Tiles(const ExpertItems* items, int across, int columns, uint32_t rank)
      : items_(items->items),
        across_(across),
        alone_((across + kCluster - 1) / kCluster),
        columns_(columns),
        rank_(static_cast<int>(rank)),
        count_(items->count),
        next_(static_cast<int>(blockIdx.x) / kCluster) {
    all_ = first_of(items_[count_]);
  }

  __device__ bool take(Tile& tile) {
    if (next_ >= all_) return false;
    const ExpertItem item = items_[find()];
    const int in_item = next_ - first_of(item);
    tile.shared = item.middle < item.end;
    tile.expert = item.expert;
    const int begin = tile.shared && rank_ == 1 ? item.middle : item.row,
              end = tile.shared && rank_ == 0 ? item.middle : item.end;
    tile.header = {begin, end - begin, (tile.shared ? in_item : kCluster * in_item + rank_) * columns_,
                   (end - begin + 7) / 8 * 8};
    next_ += static_cast<int>(gridDim.x) / kCluster;
    return true;
  }

 private:
  __device__ int first_of(const ExpertItem& item) const {
    return item.pairs * across_ + item.singles * alone_;
  }
  // The last item that begins at or before the next tile: the warp's lanes look at 32 at once.
  __device__ int find() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int low = 0, high = count_;
    while (high - low > 1) {
      const int step = (high - low + 31) / 32, at = low + lane * step;
      const bool begun = at < high && first_of(items_[at]) <= next_;
      low += (__popc(__ballot_sync(0xffffffffu, begun)) - 1) * step;
      high = min(high, low + step);
    }
    return low;
  }

  const ExpertItem* items_;
  int across_, alone_, columns_, rank_, count_, next_, all_;
};

// How many columns of swiglu, or of d, a tile has.
template <Gate kGate>
constexpr int kColumns = kGate == Gate::kForward ? kTileColumns / 2 : kTileColumns;

// By one warp, or with kGather by four.
template <bool kTranspose, bool kGather, Gate kGate>
class Producer {
 public:
  __device__ Producer(const ExpertProductArguments& g, const Ring& ring, uint32_t rank)
      : g_(g), ring_(ring), rank_(rank), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    Tiles tiles(g_.items, (g_.columns + kColumns<kGate> - 1) / kColumns<kGate>, kColumns<kGate>, rank_);
    for (Tiles::Tile tile; tiles.take(tile);) {
      const Header& header = tile.header;
      if constexpr (kGather) find_rows(header);
      for (int depth = 0; depth < g_.depth; depth += kStep) {
        wait(ring_.empty(), ring_.parity ^ 1);
        if (thread_ == 0) {
          if (depth == 0) ring_.set_header(header);
          const int boxes = kGather ? 0 : (header.n + kRowsOfBox - 1) / kRowsOfBox;
          expect_bytes(ring_.full(), kMatrixBytes + boxes * kBoxBytes);
          send_matrix(tile, depth);
          for (int box = 0; box < boxes; ++box)
            load_box(ring_.bytes() + kMatrixBytes + box * kBoxBytes, g_.rows, ring_.full(), depth,
                     header.row + box * kRowsOfBox);
        }
        if constexpr (kGather) send_rows(header.n, depth);
        ring_.advance();
      }
    }
    wait(ring_.empty(), ring_.parity ^ 1);
    if (thread_ == 0) {
      ring_.set_header({0, 0, 0, 0});
      arrive(ring_.full());
    }
    if constexpr (kGather) arrive_with_chunks(ring_.full());
  }

 private:
  // Two halves of 128 columns, or of gate and of up: each block copies one for both where both use the same.
  __device__ void send_matrix(const Tiles::Tile& tile, int depth) const {
    for (int half = 0; half < 2; ++half) {
      if (tile.shared && half != static_cast<int>(rank_)) continue;
      const int column = tile.header.column + half * (kGate == Gate::kForward ? g_.columns : kRowsOfMatrix);
      const uint32_t to = ring_.bytes() + half * kHalfBytes;
      if constexpr (kTranspose) {
        send_box(tile, to, depth, column);
      } else {
        for (int box = 0; box < 2; ++box) send_box(tile, to + box * kBoxBytes, column + 64 * box, depth);
      }
    }
  }
  __device__ void send_box(const Tiles::Tile& tile, uint32_t to, int x, int y) const {
    if (tile.shared)
      load_box_of_two(to, g_.matrices, ring_.full(), x, y, tile.expert);
    else
      load_box(to, g_.matrices, ring_.full(), x, y, tile.expert);
  }

  // A thread copies one chunk of every 16th row of a step; rows beyond the tile's are its last once more.
  static constexpr int kEach = kMostTokens / 16;
  __device__ void find_rows(const Header& header) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = min(thread_ / 8 + 16 * i, header.rows - 1);
      offsets_[i] = static_cast<uint32_t>(g_.tokens[header.row + row]) * static_cast<uint32_t>(g_.depth / 8);
    }
  }
  __device__ void send_rows(int n, int depth) const {
    const int column = depth + thread_ % 8 * 8;
    const uint32_t bytes = column < g_.depth ? 16 : 0;
    const auto* from = reinterpret_cast<const uint4*>(g_.gathered) + (bytes == 0 ? 0 : column / 8);
    const uint32_t to = chunk_of(ring_.bytes() + kMatrixBytes, thread_ / 8, thread_ % 8);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (thread_ / 8 + 16 * i < n) load_chunk(to + i * 16 * 128, from + offsets_[i], bytes);
    arrive_with_chunks(ring_.full());
  }

  const ExpertProductArguments& g_;
  Ring ring_;
  uint32_t rank_;
  int thread_;
  uint32_t offsets_[kEach];  // in chunks
};

}  // namespace temper::backends::hopper::experts
