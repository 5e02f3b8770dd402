#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include "backends/hopper/attention/attention_schedule.h"

namespace temper::backends::hopper {

// What the kernel of attention's backward pass reads and writes, all on the device. Rows of logs, deltas and
// dq are those of tiles: tile t of a document's queries is tile `document.tile + t` of `tiles`.
struct BackwardArguments {
  CUtensorMap q, k, v, dy;  // [tokens, heads, head_dim], boxes of [tile or kBlock, 1, 64], swizzled
  // [heads · tiles · tile] in float32, boxes of [tile]: of the softmax's denominators, to base 2, infinite
  // beyond a document; Σ y dy. By maps like the others: racecheck takes copies of plain addresses in a loop
  // for races.
  CUtensorMap logs, deltas;
  const Document* documents;
  const Item* items;
  float* dq;  // [heads, tiles, 2, 8, 128, 4]: sums as the two warpgroups hold them; written by the first turn
  int* turns;   // [heads, tiles], zero: whose turn it is to add to dq
  int* ticket;  // zero: the next item
  __nv_bfloat16 *dk, *dv;
  int64_t dk_stride, dv_stride;  // of tokens, in elements
  int tiles, heads_per_key;
  int window;  // 0: no limit
  float scale;
};

void launch_backward(int head_dim, const BackwardArguments& arguments, int items, cudaStream_t stream);

}  // namespace temper::backends::hopper
