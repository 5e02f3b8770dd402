#pragma once
#include <vector>

#include "autograd/tape.h"

// Moves between ops that only rearrange or add, with gradients that copy as little as possible.
namespace temper::layers {

Var residual_add(Tape& tape, const Var& x, const Var& branch);  // same shape and dtype

// x cut into consecutive rows or columns, as views. Gradients are put together again.
std::vector<Var> split_rows(Tape& tape, const Var& x, const std::vector<int64_t>& counts);
std::vector<Var> split_columns(Tape& tape, const Var& x,
                               const std::vector<int64_t>& widths);  // of [rows, columns]

// x without gaps: where it is a view, a copy, so that it does not keep the rest.
Var compact(Tape& tape, const Var& x);
Var join_columns(Tape& tape, const std::vector<Var>& parts);  // [rows, …] each, side by side

// The sum of scalars that backward can start from: each gets the gradient as it is.
Var add_losses(Tape& tape, const std::vector<Var>& losses);

// x, from which backward goes to `loss`, a scalar, too, as if it had started there.
Var with_loss(Tape& tape, const Var& x, const Var& loss);

// [tokens, heads head_dim] → [tokens, heads, head_dim], a view.
Var split_heads(Tape& tape, const Var& x, int64_t head_dim);

// Rows of equal groups, each cut into parts alike: part i of every group, one after the other, is a result of
// its own, or several next to each other: {{q, k}, {z}} gives [rows, groups q + groups k] and
// [rows, groups z]. Copies.
std::vector<Var> ungroup_columns(Tape& tape, const Var& x, int64_t groups,
                                 const std::vector<std::vector<int64_t>>& widths);

// x · sigmoid(gate), [rows, columns] of x's dtype; the gate has as many columns, or one. In float32, rounded
// once.
Var sigmoid_gated(Tape& tape, const Var& x, const Var& gate);

Var merge_heads(Tape& tape, const Var& x);  // [tokens, heads, head_dim] → [tokens, heads head_dim]

}  // namespace temper::layers
