#include "ops/moe_experts/compose.h"

#include <vector>

#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// The rows that one expert computes: places in the list of all choices, token by token.
struct OneExpert {
  std::vector<int32_t> choices, tokens;
};

// Where memory is only counted there are no ids: the experts take turns, so that as many as can be have rows.
std::vector<OneExpert> by_expert(const Tensor& ids, int64_t experts) {
  std::vector<OneExpert> all(static_cast<size_t>(experts));
  const bool counted = only_counts(ids.device());
  const Tensor seen = counted ? Tensor() : ids.on({});
  for (size_t i = 0; i < static_cast<size_t>(ids.numel()); ++i) {
    const size_t expert = counted ? i % all.size() : static_cast<size_t>(seen.values<int32_t>()[i]);
    OneExpert& own = all[expert];
    own.choices.push_back(static_cast<int32_t>(i));
    own.tokens.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / ids.dim(1)));
  }
  return all;
}

// silu(gate) * up * weight, [rows, width] of gate_up's dtype.
Var gated(Tape& tape, const Var& gate_up, const Var& weight) {
  const int64_t width = gate_up.shape()[1] / 2;
  const Var wide = p::cast(tape, gate_up, DType::kF32);
  const Var gate = p::narrow(tape, wide, 1, 0, width), up = p::narrow(tape, wide, 1, width, width);
  const Var y = p::mul(tape, p::mul(tape, gate, p::sigmoid(tape, gate)), up);
  return p::cast(tape, p::mul(tape, y, weight), gate_up.dtype());
}

Var rows_of(Tape& tape, const Var& x, const std::vector<int32_t>& rows) {
  return p::gather_rows(tape, x, {Tensor::from(rows), x.shape()[0], x.requires_grad()});
}

}  // namespace

Var compose_experts(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, int64_t experts,
                    const ExpertProduct& gate_up, const ExpertProduct& down) {
  const int64_t tokens = x.shape()[0], hidden = x.shape()[1], top_k = ids.dim(1), choices = tokens * top_k;
  const Var weight = p::reshape(tape, weights, {choices, 1});
  const std::vector<OneExpert> all = by_expert(ids, experts);
  std::vector<Var> results;
  std::vector<int32_t> places(static_cast<size_t>(choices));  // of each choice among the results' rows
  int32_t place = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const OneExpert& own = all[static_cast<size_t>(e)];
    if (own.choices.empty() && tokens > 0) continue;
    for (const int32_t choice : own.choices) places[static_cast<size_t>(choice)] = place++;
    const Var gated_rows =
        gated(tape, gate_up(e, rows_of(tape, x, own.tokens)), rows_of(tape, weight, own.choices));
    results.push_back(down(e, gated_rows));
  }
  const Var chosen = rows_of(tape, p::concat_first(tape, results), places);
  const Var by_token = p::transpose(tape, p::reshape(tape, chosen, {tokens, top_k, hidden}), 1, 2);
  return p::reshape(tape, p::sum_last(tape, by_token), {tokens, hidden});
}

Var matrix_of_expert(Tape& tape, const Var& matrices, int64_t expert, int64_t experts) {
  const int64_t rows = matrices.shape()[0] / experts;
  return p::narrow(tape, matrices, 0, expert * rows, rows);
}

}  // namespace temper::ops
