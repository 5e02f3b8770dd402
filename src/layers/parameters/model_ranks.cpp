#include "layers/parameters/model_ranks.h"

#include <algorithm>

#include "primitives/collectives.h"

namespace temper::layers {

ModelStages::Layers ModelStages::layers_of(int part, size_t layers) const {
  if (parts.empty()) return {0, layers};
  const auto [begin, end] = std::equal_range(parts.begin(), parts.end(), part);
  return {static_cast<size_t>(begin - parts.begin()), static_cast<size_t>(end - parts.begin())};
}

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
