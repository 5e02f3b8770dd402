#pragma once
#include "autograd/tape.h"

// Moves between ops that only rearrange or add, with gradients that copy as little as possible.
namespace temper::layers {

Var residual_add(Tape& tape, const Var& x, const Var& branch);  // same shape and dtype

Var merge_heads(Tape& tape, const Var& x);  // [tokens, heads, head_dim] → [tokens, heads head_dim]

}  // namespace temper::layers
