#include "ops/low_rank.h"

namespace temper::ops {

namespace p = primitives;

Var compose_update(Tape& tape, const Var& input, const Var& a, const std::vector<LowRankSlice<Var>>& slices,
                   int64_t out) {
  const int64_t rows = input.shape()[0];
  const auto zeros = [&](int64_t columns) {
    return tape.constant(
        Tensor::zeros({rows, columns}, input.dtype(), MemoryTag::kActivations, input.value.device()));
  };
  const Var low = p::matmul(tape, input, a, {.transpose_b = true});
  Var update = zeros(out);
  int64_t first = 0;
  for (const auto& slice : slices) {
    const int64_t rank = slice.b.shape()[1], width = slice.b.shape()[0];
    const Var part =
        p::scale(tape, p::matmul(tape, p::narrow(tape, low, 1, first, rank), slice.b, {.transpose_b = true}),
                 slice.scale);
    const int64_t after = out - slice.column - width;
    Var row = part;
    if (slice.column > 0) row = p::concat_last(tape, zeros(slice.column), row);
    if (after > 0) row = p::concat_last(tape, row, zeros(after));
    update = p::add(tape, update, row);
    first += rank;
  }
  return update;
}

}  // namespace temper::ops
