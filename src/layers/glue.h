#pragma once
#include "autograd/tape.h"

// Moves between ops that only rearrange or add, with gradients that copy as little as possible.
namespace temper::layers {

Var residual_add(Tape& tape, const Var& x, const Var& branch);  // same shape and dtype

struct SplitHeads {
  Var q;     // [tokens, heads, head_dim], a view
  Var k, v;  // [tokens, kv_heads, head_dim], views
};
// qkv [tokens, (heads + 2 kv_heads) head_dim]
SplitHeads split_heads(Tape& tape, const Var& qkv, int64_t heads, int64_t kv_heads, int64_t head_dim);

Var merge_heads(Tape& tape, const Var& x);  // [tokens, heads, head_dim] → [tokens, heads head_dim]

}  // namespace temper::layers
