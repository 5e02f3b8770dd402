#pragma once
#include <cstdint>

// Which block of keys meets which tile of queries when, in the backward pass of attention, and in which order
// the tiles' gradients are summed. Host and device agree by sharing these functions.
namespace temper::backends::hopper {

#ifdef __CUDACC__
#define TEMPER_BOTH __host__ __device__ inline
#else
#define TEMPER_BOTH inline
#endif

inline constexpr int kBlock = 128;  // keys that a block of threads holds at a time

// Queries that it meets at a time.
TEMPER_BOTH constexpr int tile_of(int head_dim) { return head_dim == 64 ? 128 : 64; }

struct Document {
  int query, queries, key, keys;  // keys >= queries, aligned at the end
  int tile;                       // the number of its first tile of queries among all documents'
  int paired;                     // whether its items are pairs of blocks
};

// What one block of threads does for all query heads of a key head: a block of keys that meets its tiles in
// rising order, and maybe a second that meets them in falling order.
struct Item {
  int document, kv_head;  // document < 0: nothing
  int first, second;      // blocks of keys; second < 0: none
};

struct TileRows {
  int token, rows;  // the tile's first query and how many it has
  int log;          // where its first log is among those of forward
};

struct Range {
  int begin, end;
  TEMPER_BOTH int size() const { return end - begin; }
};

TEMPER_BOTH int at_least(int value, int least) { return value > least ? value : least; }
TEMPER_BOTH int at_most(int value, int most) { return value < most ? value : most; }

// The tiles whose queries see a key of the block.
TEMPER_BOTH Range tiles_of(const Document& d, int block, int tile, int window) {
  const int shift = d.keys - d.queries, tiles = (d.queries + tile - 1) / tile;
  const int begin = at_least(block * kBlock - shift, 0) / tile;
  if (window == 0) return {begin, tiles};
  const int last = block * kBlock + kBlock - 1 + window - 1 - shift;  // query
  const int end = last < 0 ? 0 : at_most(tiles, last / tile + 1);
  return {begin, at_least(end, begin)};
}

// How many terms of an arithmetic progression first, first - step, ... with indices in [low, high] lie below
// `limit`.
TEMPER_BOTH int count_below(int first, int step, int low, int high, int limit) {
  const int above = first - limit;  // term j is below the limit where j · step > above
  const int from = above < 0 ? low : at_least(low, above / step + 1);
  return at_least(high - from + 1, 0);
}

// Documents whose queries are all their keys: block j and block `blocks` - 1 - j are one item, so that
// items are equal in length, and every tile is met by at most one item at a time if they all start together
// and need as long for every step. The order of sums is that of those times; items of a key head wait for
// each other, therefore all must fit on the device at once.
struct Paired {
  int blocks, tiles, heads;  // heads: of queries for one head of keys
  int ratio;                 // tiles in a block

  TEMPER_BOTH int turn(int head, int tile, int item, bool second) const {
    const int step_first = ratio * (head + 1), step_second = ratio * (heads - head);
    const int base_first = head * tiles + tile;
    const int base_second = heads * tiles + head * (tiles - ratio * (blocks - 1)) + tiles - 1 - tile;
    const int time = second ? base_second - step_second * item : base_first - step_first * item;
    const int diagonal = tile / ratio;  // the last block that the tile sees
    return count_below(base_first, step_first, 0, at_most((blocks + 1) / 2 - 1, diagonal),
                       second ? time + 1 : time) +
           count_below(base_second, step_second, at_least(blocks - 1 - diagonal, 0), blocks / 2 - 1, time);
  }
};

// All others: one block is one item, items come by falling blocks, and wait only for items before them.
TEMPER_BOTH int single_turn(const Document& d, int tile_index, int tile, int block) {
  const int blocks = (d.keys + kBlock - 1) / kBlock;
  const int last = (tile_index * tile + tile - 1 + d.keys - d.queries) / kBlock;
  return at_most(last, blocks - 1) - block;
}

#undef TEMPER_BOTH

}  // namespace temper::backends::hopper
