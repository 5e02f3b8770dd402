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
// Shared memory: the stages, their headers and barriers, and what is on its way to memory.
constexpr int kHeaders = kStages * kStageBytes, kBarriers = kHeaders + kStages * 16,
              kStores = kStages * kStageBytes + kGroupBytes;
static_assert(kBarriers + 2 * kStages * 8 <= kStores);

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

// Of a block of threads that begins.
__device__ inline Ring make_ring(const void* memory, uint32_t arrivals) {
  Ring ring{(shared_address(memory) + kGroupBytes - 1) / kGroupBytes * kGroupBytes};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage, ring.advance()) {
      init_barrier(ring.full(), arrivals);
      init_barrier(ring.empty(), kCluster * kConsumers);
    }
    fence_barriers();
  }
  ring.stage = 0;
  ring.parity = 0;
  sync_cluster();
  return ring;
}

// How many columns of swiglu, or of d, a tile has.
template <Gate kGate>
constexpr int kColumns = kGate == Gate::kForward ? kTileColumns / 2 : kTileColumns;

// Backward, gate and up come through the ring as steps of their own behind a tile's first ones, with the rows
// of the tile before, or in front of all if those are fewer.
constexpr int kGateTokens = kRowsOfGateBox, kGateSteps = kMostTokens / kGateTokens,
              kGateBoxBytes = kGateTokens * 128;
__device__ inline bool hides(const ExpertProductArguments& g) { return steps_of(g) >= kGateSteps; }

// By one warp, or with kGather by four.
template <bool kTranspose, bool kGather, Gate kGate>
class Producer {
 public:
  __device__ Producer(const ExpertProductArguments& g, const Ring& ring, uint32_t rank)
      : g_(g), ring_(ring), rank_(rank), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    Tiles tiles(g_.items, (g_.columns + kColumns<kGate> - 1) / kColumns<kGate>, kColumns<kGate>, rank_);
    Header last{};
    bool any = false;
    for (Tiles::Tile tile; tiles.take(tile); last = tile.header, any = true) {
      const Header& header = tile.header;
      if constexpr (kGather) find_rows(header);
      if (kGate == Gate::kBackward && any && !hides(g_)) send_all_gate_up(last, header);
      const int own_steps = steps_of(g_.depth), steps = steps_of(g_);
      for (int step = 0; step < steps; ++step) {
        begin_step(step == 0, header);
        if (step < own_steps)
          send_step<false>(tile, step * kStep);
        else
          send_step<true>(tile, (step - own_steps) * kStep);
        ring_.advance();
        if (kGate == Gate::kBackward && any && step < kGateSteps && hides(g_)) send_gate_up(last, step);
      }
    }
    const Header end{0, 0, 0, 0};
    if (kGate == Gate::kBackward && any) return send_all_gate_up(last, end);
    begin_step(true, end);
    if (thread_ == 0) arrive(ring_.full());
    if constexpr (kGather) arrive_with_chunks(ring_.full());
  }

 private:
  // A tile's header, or that of the end, goes with the first stage behind the tile before.
  __device__ void begin_step(bool has_header, const Header& header) const {
    wait(ring_.empty(), ring_.parity ^ 1);
    if (thread_ == 0 && has_header) ring_.set_header(header);
  }
  __device__ void send_all_gate_up(const Header& tile, const Header& next) {
    for (int step = 0; step < kGateSteps; ++step) send_gate_up(tile, step, step == 0, next);
  }
  // A step along the depth of the product, or of its update.
  template <bool kUpdate>
  __device__ __forceinline__ void send_step(const Tiles::Tile& tile, int depth) const {
    const Header& header = tile.header;
    if (thread_ == 0) {
      const int boxes = kGather ? 0 : (header.n + kRowsOfBox - 1) / kRowsOfBox;
      expect_bytes(ring_.full(), kMatrixBytes + boxes * kBoxBytes);
      send_matrix(kUpdate ? g_.update_matrices : g_.matrices, tile, depth);
      for (int box = 0; box < boxes; ++box)
        load_box(ring_.bytes() + kMatrixBytes + box * kBoxBytes, kUpdate ? g_.update_rows : g_.rows,
                 ring_.full(), depth, header.row + box * kRowsOfBox);
    }
    if constexpr (kGather && kUpdate) send_low(header, depth);
    if constexpr (kGather && !kUpdate) send_rows(header.n, depth);
  }

  // kGateTokens rows of gate, then of up. Of every tile the same number of steps: the other block's are in
  // step.
  __device__ void send_gate_up(const Header& tile, int step, bool has_next = false, const Header& next = {}) {
    begin_step(has_next, next);
    if (thread_ == 0) {
      expect_bytes(ring_.full(), 8 * kGateBoxBytes);
      for (int box = 0; box < 8; ++box)
        load_box(ring_.bytes() + box * kGateBoxBytes, g_.rows, ring_.full(),
                 (box < 4 ? 0 : g_.columns) + tile.column + box % 4 * 64, tile.row + step * kGateTokens);
    }
    arrive_with_chunks(ring_.full());
    ring_.advance();
  }

  // Two halves of 128 columns, or of gate and of up: each block copies one for both where both use the same.
  __device__ void send_matrix(const CUtensorMap& matrices, const Tiles::Tile& tile, int depth) const {
    for (int half = 0; half < 2; ++half) {
      if (tile.shared && half != static_cast<int>(rank_)) continue;
      const int column = tile.header.column + half * (kGate == Gate::kForward ? g_.columns : kRowsOfMatrix);
      const uint32_t to = ring_.bytes() + half * kHalfBytes;
      if constexpr (kTranspose) {
        send_box(matrices, tile, to, depth, column);
      } else {
        for (int box = 0; box < 2; ++box)
          send_box(matrices, tile, to + box * kBoxBytes, column + 64 * box, depth);
      }
    }
  }
  __device__ void send_box(const CUtensorMap& matrices, const Tiles::Tile& tile, uint32_t to, int x,
                           int y) const {
    if (tile.shared)
      load_box_of_two(to, matrices, ring_.full(), x, y, tile.expert);
    else
      load_box(to, matrices, ring_.full(), x, y, tile.expert);
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

  // The same of the update's rows, which are in the plan's order.
  __device__ void send_low(const Header& header, int depth) const {
    const int column = depth + thread_ % 8 * 8;
    const uint32_t bytes = column < g_.update_depth ? 16 : 0;
    const uint32_t to = chunk_of(ring_.bytes() + kMatrixBytes, thread_ / 8, thread_ % 8);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = thread_ / 8 + 16 * i;
      if (row >= header.n) continue;
      const int64_t at = header.row + min(row, header.rows - 1);
      load_chunk(to + i * 16 * 128, g_.low + (bytes == 0 ? 0 : at * g_.update_depth + column), bytes);
    }
    arrive_with_chunks(ring_.full());
  }

  const ExpertProductArguments& g_;
  Ring ring_;
  uint32_t rank_;
  int thread_;
  uint32_t offsets_[kEach];  // in chunks
};

}  // namespace temper::backends::hopper::experts
