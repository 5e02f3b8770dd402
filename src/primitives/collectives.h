#pragma once
#include "autograd/tape.h"
#include "collectives/group.h"

// Collectives with their gradients. All ranks of the group call each of them at the same time, forward and
// backward; the gradient of what a rank gives is the sum of what the ranks make of it.
namespace temper::primitives {

// [n, …] of each rank, where n · ranks are at least `rows`, to the first `rows` of all in their order.
Var gather_rows_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks, int64_t rows);
// The sum of the ranks' [rows, …]. Each rank gets n = rows / ranks of its rows, rounded up; padded with
// zeros.
Var scatter_sum_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks);
// x, the same on all ranks, which make different things of it.
Var read_by_ranks(Tape& tape, const Var& x, collectives::Group& ranks);
// The sum of the ranks' x, on all of them, which make the same thing of it.
Var sum_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks);
// The ranks' [rows, width], side by side in their order, [rows, ranks · width], on all of them, which make
// the same thing of it.
Var columns_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks);

}  // namespace temper::primitives
