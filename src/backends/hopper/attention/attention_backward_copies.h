#pragma once
#include "backends/hopper/attention/attention_backward_parts.h"

// The warpgroup of attention's backward kernel that copies.
namespace temper::backends::hopper {

// One thread copies in what the consumers need, as far ahead as there is room.
template <int kDim>
__device__ void produce(const BackwardArguments& a, const Work<tile_of(kDim)>& work, uint32_t base) {
  using L = Layout<kDim>;
  Ring<kStagesQ> q;
  Ring<kStagesDy> dy;
  const Document& d = work.document;
  const auto load_keys = [&](const CUtensorMap& map, uint32_t to, uint32_t barrier, bool second) {
    expect_bytes(barrier, L::kKeyBytes);
    for (int box = 0; box < L::kBoxes; ++box)
      load_box(to + box * L::kBlockBox, map, barrier, box * kBoxColumns, work.item.kv_head,
               d.key + work.block(second) * kBlock);
  };
  for (int part = 0; part < work.blocks(); ++part) {
    const bool second = part == 1;
    if (second) wait(base + L::kEmptyKeys, 0);
    load_keys(a.k, base + L::kK, base + L::kFullK, second);
    const Range range = work.range(second);
    const int steps = range.size() * a.heads_per_key;
    if (steps == 0) load_keys(a.v, base + L::kV, base + L::kFullV, second);
    for (int i = 0; i < steps; ++i) {
      const int head = work.head(i / range.size()), tile = work.tile(range, second, i % range.size());
      const int row = (head * a.tiles + d.tile + tile) * L::kTile;
      const auto load_queries = [&](const CUtensorMap& map, uint32_t to, uint32_t barrier,
                                    const CUtensorMap& values, uint32_t to_values) {
        expect_bytes(barrier, L::kQueryBytes + L::kRowBytes);
        for (int box = 0; box < L::kBoxes; ++box)
          load_box(to + box * L::kTileBox, map, barrier, box * kBoxColumns, head, d.query + tile * L::kTile);
        load_row(to_values, values, barrier, row);
      };
      wait(base + L::kEmptyQ + 8 * q.stage, q.phase ^ 1);
      load_queries(a.q, base + L::kQ + q.stage * L::kQueryBytes, base + L::kFullQ + 8 * q.stage, a.logs,
                   base + L::kLogs + q.stage * L::kRowBytes);
      if (i == 0) load_keys(a.v, base + L::kV, base + L::kFullV, second);
      wait(base + L::kEmptyDy + 8 * dy.stage, dy.phase ^ 1);
      load_queries(a.dy, base + L::kDy + dy.stage * L::kQueryBytes, base + L::kFullDy + 8 * dy.stage,
                   a.deltas, base + L::kDeltas + dy.stage * L::kRowBytes);
      q.advance();
      dy.advance();
    }
  }
}

// Adds every second tile's dq to memory, when its turn has come: one thread for even steps and one for odd
// ones, so that a step need not wait until the sum before it has arrived.
template <int kDim>
__device__ void add_dq(const BackwardArguments& a, const Work<tile_of(kDim)>& work, uint32_t base,
                       int parity) {
  using L = Layout<kDim>;
  const Document& d = work.document;
  const Paired paired{(d.keys + kBlock - 1) / kBlock, (d.queries + L::kTile - 1) / L::kTile, a.heads_per_key,
                      kBlock / L::kTile};
  uint32_t phase = 0;
  int step = 0;
  for (int part = 0; part < work.blocks(); ++part) {
    const bool second = part == 1;
    const Range range = work.range(second);
    for (int member = 0; member < a.heads_per_key; ++member)
      for (int i = 0; i < range.size(); ++i, ++step) {
        if (step % 2 != parity) continue;
        const int tile = work.tile(range, second, i);
        const int64_t place = int64_t{work.head(member)} * a.tiles + d.tile + tile;
        const int turn = d.paired != 0 ? paired.turn(member, tile, work.item.first, second)
                                       : single_turn(d, tile, L::kTile, work.item.first);
        while (load_acquire(a.turns + place) != turn) {
        }
        wait(base + L::kFullDq + 8 * parity, phase);
        phase ^= 1;
        float* const to = a.dq + place * (L::kDqBytes / 4);
        if (turn == 0)
          store_bytes(to, base + L::kDq, L::kDqBytes);
        else
          add_floats(to, base + L::kDq, L::kDqBytes);
        commit_stores();
        wait_stores_read();
        arrive(base + L::kEmptyDq);
        wait_stores();
        store_release(a.turns + place, turn + 1);
      }
  }
}

}  // namespace temper::backends::hopper
