#include "ops/low_rank.h"

#include "ops/parts_of_rows.h"

namespace temper::ops {

namespace p = primitives;

Var compose_update(Tape& tape, const Var& input, const Var& a, const std::vector<LowRankSlice<Var>>& slices,
                   int64_t out) {
  const Var low = p::matmul(tape, input, a, {.transpose_b = true});
  PartsOfRows update(tape, input);
  int64_t first = 0;
  for (const auto& slice : slices) {
    const int64_t rank = slice.b.shape()[1];
    const Var rows = p::matmul(tape, p::narrow(tape, low, 1, first, rank), slice.b, {.transpose_b = true});
    update.put(slice.column, p::scale(tape, rows, slice.scale));
    first += rank;
  }
  return update.finish(out);
}

}  // namespace temper::ops
