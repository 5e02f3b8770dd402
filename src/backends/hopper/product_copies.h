#pragma once
#include "backends/gpu/async_copies.h"
#include "backends/hopper/product_kernel.h"
#include "backends/hopper/wgmma.h"

// The tiles of a product's blocks, and how their operands come into shared memory (product_kernel.cu).
namespace temper::backends::hopper::products {

using Arguments = ProductArguments;

constexpr int kCluster = 2, kWarpgroup = 128, kConsumers = 2, kStages = 4;
constexpr int kPieces = 4;           // in which a tile is stored
constexpr int kBoxBytes = 64 * 128;  // of 64 rows
constexpr int kBytesOfA = kTileRows / 64 * kBoxBytes, kBytesOfB = kTileColumns / 64 * kBoxBytes,
              kStageBytes = kBytesOfA + kBytesOfB;
constexpr int kStores = kStages * kStageBytes;  // each warp's 16 rows of d, twice, on their way to memory
constexpr int kStoreBytes = 16 * 128;
constexpr int kBarriers = kStores + kConsumers * 4 * 2 * kStoreBytes;
constexpr int kSharedBytes = kBarriers + 2 * kStages * 8 + kGroupBytes;  // begins at a multiple of that
constexpr int kRowsInGroup = 8;                                          // of pairs of tiles

// Where the stages' copies and the warpgroups meet. A stage is full when its bytes are there, and empty when
// the warpgroups of both blocks have used what was copied into both.
struct Ring {
  uint32_t base;
  int stage = 0;
  uint32_t parity = 0;

  __device__ uint32_t bytes() const { return base + stage * kStageBytes; }
  __device__ uint32_t full() const { return base + kBarriers + 8 * stage; }
  __device__ uint32_t empty() const { return full() + 8 * kStages; }
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Tile {
  int row, column;
};

// How many of the arguments' columns a tile has.
template <Gate kGate>
constexpr int kColumns = kGate == Gate::kForward ? kTileColumns / 2 : kTileColumns;

// The tiles of a block, one after the other.
template <Gate kGate>
class Tiles {
 public:
  __device__ Tiles(const Arguments& g, uint32_t rank)
      : pairs_((g.rows + kCluster * kTileRows - 1) / (kCluster * kTileRows)),
        columns_((g.columns + kColumns<kGate> - 1) / kColumns<kGate>),
        rank_(static_cast<int>(rank)),
        next_(static_cast<int>(blockIdx.x) / kCluster) {}

  __device__ bool take(Tile& tile) {
    if (next_ >= pairs_ * columns_) return false;
    const int group = next_ / (kRowsInGroup * columns_), first = group * kRowsInGroup,
              height = min(kRowsInGroup, pairs_ - first), in_group = next_ - first * columns_;
    tile.row = ((first + in_group % height) * kCluster + rank_) * kTileRows;
    tile.column = in_group / height * kColumns<kGate>;
    next_ += static_cast<int>(gridDim.x) / kCluster;
    return true;
  }

 private:
  int pairs_, columns_, rank_, next_;
};

__device__ inline int steps_of(int depth) { return (depth + kStep - 1) / kStep; }
template <Gate kGate>
__device__ bool reaches(const Arguments& g, const Arguments::Update& update, const Tile& tile) {
  const auto overlaps = [&](int column) {
    return update.column < column + kColumns<kGate> && column < update.column + update.columns;
  };
  return overlaps(tile.column) || (kGate == Gate::kForward && overlaps(g.columns + tile.column));
}

// Copies of one step into the ring's next stage. `column`: of b, this block's first.
template <bool kTransposeB>
__device__ inline void send(Ring& ring, uint32_t rank, const CUtensorMap& a, const CUtensorMap& b, int row,
                            int column, int depth) {
  wait(ring.empty(), ring.parity ^ 1);
  const uint32_t to = ring.bytes(), barrier = ring.full();
  expect_bytes(barrier, kStageBytes);
  load_box(to, a, barrier, depth, row);
  const uint32_t to_b = to + kBytesOfA + rank * (kBytesOfB / kCluster);
  if constexpr (kTransposeB) {
    load_box_of_two(to_b, b, barrier, depth, column);
  } else {
    for (int box = 0; box < 2; ++box)
      load_box_of_two(to_b + box * kBoxBytes, b, barrier, column + 64 * box, depth);
  }
  ring.advance();
}

// 64 columns of gate and of up of a tile's rows.
__device__ inline void send_piece(const Arguments& g, Ring& ring, int row, int column) {
  wait(ring.empty(), ring.parity ^ 1);
  const uint32_t to = ring.bytes(), barrier = ring.full();
  expect_bytes(barrier, 2 * kBytesOfA);
  load_box(to, g.gate_up, barrier, column, row);
  load_box(to + kBytesOfA, g.gate_up, barrier, g.columns + column, row);
  ring.advance();
}

// Whether a tile has enough steps to hide the stores of the one before.
__device__ inline bool hides(const Arguments& g) { return g.depth >= kPieces * kStep; }

// All whole steps come first, then the last of each update. Gate and up follow when they are read, among the
// steps of the next tile.
template <bool kTransposeB, Gate kGate>
__device__ void produce(const Arguments& g, Ring ring, uint32_t rank) {
  Tiles<kGate> tiles(g, rank);
  const int half = static_cast<int>(rank) * (kGate == Gate::kForward ? g.columns : kRowsOfB);
  const auto send_gate_up = [&](const Tile& tile, int piece) {
    if constexpr (kGate == Gate::kBackward) send_piece(g, ring, tile.row, tile.column + 64 * piece);
  };
  const auto send_all = [&](const Tile& tile) {
    for (int piece = 0; piece < kPieces; ++piece) send_gate_up(tile, piece);
  };
  Tile last;
  bool any = false;
  for (Tile tile; tiles.take(tile); last = tile, any = true) {
    const int column = tile.column + half;
    if (any && !hides(g)) send_all(last);
    for (int step = 0; step * kStep < g.depth; ++step) {
      send<kTransposeB>(ring, rank, g.a, g.b, tile.row, column, step * kStep);
      if (any && step < kPieces && hides(g)) send_gate_up(last, step);
    }
    const auto send_updates = [&](bool last_steps) {
      for (int u = 0; u < g.update_count; ++u) {
        const Arguments::Update& update = g.updates[u];
        if (!reaches<kGate>(g, update, tile)) continue;
        const int begin_of_last = (steps_of(update.depth) - 1) * kStep,
                  end = last_steps ? update.depth : begin_of_last;
        for (int depth = last_steps ? begin_of_last : 0; depth < end; depth += kStep)
          send<kTransposeB>(ring, rank, update.a, update.b, tile.row, column - update.column, depth);
      }
    };
    send_updates(false);
    send_updates(true);
  }
  if (any) send_all(last);
}

}  // namespace temper::backends::hopper::products
