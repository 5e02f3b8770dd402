#include "layers/parameters/model_ranks.h"

#include "primitives/collectives.h"

namespace temper::layers {

Var ModelRanks::enter(Tape& tape, const Var& x, int64_t tokens, bool sequence) const {
  if (tensor == nullptr) return x;
  return divides_tokens(sequence) ? primitives::gather_rows_of_ranks(tape, x, *tensor, tokens)
                                  : primitives::read_by_ranks(tape, x, *tensor);
}

Var ModelRanks::leave(Tape& tape, const Var& y, bool sequence) const {
  if (tensor == nullptr) return y;
  return divides_tokens(sequence) ? primitives::scatter_sum_of_ranks(tape, y, *tensor)
                                  : primitives::sum_of_ranks(tape, y, *tensor);
}

}  // namespace temper::layers
