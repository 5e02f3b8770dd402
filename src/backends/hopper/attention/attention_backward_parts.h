#pragma once
#include "backends/gpu/async_copies.h"
#include "backends/hopper/attention/attention_backward_kernel.h"
#include "backends/hopper/wgmma.h"

// What the warpgroups of attention's backward kernel share.
namespace temper::backends::hopper {

inline constexpr int kWarpgroup = 128;  // threads
inline constexpr int kBoxColumns = 64;  // elements of 128 bytes
inline constexpr int kStagesQ = 3, kStagesDy = 2;
inline constexpr int kAllConsumers = 1;  // named barriers
inline constexpr int kOneConsumer = 2;   // and the next

// Offsets in shared memory, in bytes.
template <int kDim>
struct Layout {
  static constexpr int kTile = tile_of(kDim);
  static constexpr int kBlockBox = kBlock * 128, kTileBox = kTile * 128;  // bytes
  static constexpr int kBoxes = kDim / kBoxColumns;
  static constexpr int kKeyBytes = kBlockBox * kBoxes, kQueryBytes = kTileBox * kBoxes;
  static constexpr int kScoreBoxes = kTile / kBoxColumns, kScoreBytes = kBlockBox * kScoreBoxes;
  static constexpr int kDqBytes = kTile * kDim * 4;
  static constexpr int kRowBytes = kTile * 4;

  static constexpr int kK = 0, kV = kK + kKeyBytes, kQ = kV + kKeyBytes, kDy = kQ + kStagesQ * kQueryBytes,
                       kScores = kDy + kStagesDy * kQueryBytes, kDq = kScores + 2 * kScoreBytes,
                       kLogs = kDq + kDqBytes, kDeltas = kLogs + kStagesQ * kRowBytes,
                       kBarriers = kDeltas + kStagesDy * kRowBytes;
  // Barriers, 8 bytes each.
  static constexpr int kFullK = kBarriers, kFullV = kFullK + 8, kEmptyKeys = kFullV + 8,
                       kFullQ = kEmptyKeys + 8, kEmptyQ = kFullQ + 8 * kStagesQ,
                       kFullDy = kEmptyQ + 8 * kStagesQ, kEmptyDy = kFullDy + 8 * kStagesDy,
                       kFullDq = kEmptyDy + 8 * kStagesDy, kEmptyDq = kFullDq + 16, kTicket = kEmptyDq + 8,
                       kEnd = kTicket + 16;
  static constexpr int kBytes = kEnd + kGroupBytes;  // to begin at a multiple of a group
};

// Which stage of a ring comes next, and the parity of its phase.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The same in all threads of a warp, and known to be by the compiler, which then keeps it in uniform
// registers.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// An item's steps.
template <int kTile>
struct Work {
  const BackwardArguments& arguments;
  Item item;
  Document document;

  __device__ Work(const BackwardArguments& a, int index) : arguments(a) {
    const Item i = a.items[uniform(index)];
    item = {uniform(i.document), uniform(i.kv_head), uniform(i.first), uniform(i.second)};
    const Document d = a.documents[at_least(item.document, 0)];
    document = {uniform(d.query), uniform(d.queries), uniform(d.key),
                uniform(d.keys),  uniform(d.tile),    uniform(d.paired)};
  }
  __device__ bool is_empty() const { return item.document < 0; }
  __device__ int blocks() const { return item.second < 0 ? 1 : 2; }
  __device__ int block(bool second) const { return second ? item.second : item.first; }
  __device__ Range range(bool second) const {
    return tiles_of(document, block(second), kTile, arguments.window);
  }
  __device__ int tile(Range range, bool second, int step) const {
    return second ? range.end - 1 - step : range.begin + step;
  }
  __device__ int head(int member) const { return item.kv_head * arguments.heads_per_key + member; }
};

template <int kDim>
__device__ inline void init_barriers(uint32_t base) {
  using L = Layout<kDim>;
  constexpr int kWarps = 8;  // that consume
  init_barrier(base + L::kFullK, 1);
  init_barrier(base + L::kFullV, 1);
  init_barrier(base + L::kEmptyKeys, 2 * kWarpgroup);
  for (int s = 0; s < kStagesQ; ++s) {
    init_barrier(base + L::kFullQ + 8 * s, 1);
    init_barrier(base + L::kEmptyQ + 8 * s, kWarps);
  }
  for (int s = 0; s < kStagesDy; ++s) {
    init_barrier(base + L::kFullDy + 8 * s, 1);
    init_barrier(base + L::kEmptyDy + 8 * s, kWarps);
  }
  for (int parity = 0; parity < 2; ++parity) init_barrier(base + L::kFullDq + 8 * parity, kWarps);
  init_barrier(base + L::kEmptyDq, 1);
  fence_barriers();
}

}  // namespace temper::backends::hopper
