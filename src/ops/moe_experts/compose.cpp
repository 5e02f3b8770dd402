#include "ops/moe_experts/compose.h"

#include <limits>
#include <vector>

#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// The gate's result and what multiplies it, float32.
Var gate_of(Tape& tape, const Var& gate, const Var& up, const ExpertsGate& form) {
  if (!form.clamped) return p::mul(tape, p::mul(tape, gate, p::sigmoid(tape, gate)), up);
  const Var g = p::clamp(tape, gate, -std::numeric_limits<float>::infinity(), form.limit),
            u = p::clamp(tape, up, -form.limit, form.limit);
  const Var swish = p::mul(tape, g, p::sigmoid(tape, p::scale(tape, g, form.alpha)));
  return p::mul(tape, swish, p::add_scalar(tape, u, 1));
}

// The gate's result times weight, [rows, width] of gate_up's dtype.
Var gated(Tape& tape, const Var& gate_up, const Var& weight, const ExpertsGate& form) {
  const int64_t width = gate_up.shape()[1] / 2;
  const Var wide = p::cast(tape, gate_up, DType::kF32);
  const Var gate = p::narrow(tape, wide, 1, 0, width), up = p::narrow(tape, wide, 1, width, width);
  return p::cast(tape, p::mul(tape, gate_of(tape, gate, up, form), weight), gate_up.dtype());
}

// The bias of one expert, one row.
Var bias_of(Tape& tape, const Var& biases, int64_t expert, int64_t size) {
  return p::reshape(tape, p::narrow(tape, biases, 0, expert * size, size), {1, size});
}

}  // namespace

Var rows_of(Tape& tape, const Var& x, const std::vector<int32_t>& rows) {
  return p::gather_rows(tape, x, {Tensor::from(rows), x.shape()[0], x.requires_grad()});
}

Var in_order_of_choices(Tape& tape, const Tensor& ids, int64_t experts,
                        const std::function<Var(int64_t expert, const RowsOfExpert& own)>& of_expert) {
  const std::vector<RowsOfExpert> all = rows_by_expert(ids, experts);
  std::vector<Var> results;
  std::vector<int32_t> places(static_cast<size_t>(ids.numel()));  // of each choice among the results' rows
  int32_t place = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const RowsOfExpert& own = all[static_cast<size_t>(e)];
    if (own.choices.empty() && ids.numel() > 0) continue;
    for (const int32_t choice : own.choices) places[static_cast<size_t>(choice)] = place++;
    results.push_back(of_expert(e, own));
  }
  return rows_of(tape, p::concat_first(tape, results), places);
}

std::vector<RowsOfExpert> rows_by_expert(const Tensor& ids, int64_t experts) {
  std::vector<RowsOfExpert> all(static_cast<size_t>(experts));
  const bool counted = only_counts(ids.device());
  const Tensor seen = counted ? Tensor() : ids.on({});
  for (size_t i = 0; i < static_cast<size_t>(ids.numel()); ++i) {
    const size_t expert = counted ? i % all.size() : static_cast<size_t>(seen.values<int32_t>()[i]);
    RowsOfExpert& own = all[expert];
    own.choices.push_back(static_cast<int32_t>(i));
    own.tokens.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / ids.dim(1)));
  }
  return all;
}

Var compose_experts(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, int64_t experts,
                    const ExpertProducts& products, const ExpertWeights& of) {
  const int64_t hidden = x.shape()[1], top_k = ids.dim(1);
  const Var weight = p::reshape(tape, weights, {ids.numel(), 1});
  const Var chosen = in_order_of_choices(tape, ids, experts, [&](int64_t e, const RowsOfExpert& own) {
    const Var own_weights = rows_of(tape, weight, own.choices);
    Var inner = products.gate_up(e, rows_of(tape, x, own.tokens));
    if (of.has_biases()) inner = p::add(tape, inner, bias_of(tape, of.gate_up_bias, e, inner.shape()[1]));
    Var result = products.down(e, gated(tape, inner, own_weights, of.gate));
    if (of.has_biases()) {
      const Var bias = p::cast(tape, bias_of(tape, of.down_bias, e, hidden), DType::kF32);
      result = p::add(tape, result, p::cast(tape, p::mul(tape, own_weights, bias), result.dtype()));
    }
    return result;
  });
  return sum_of_choices(tape, chosen, top_k);
}

Var sum_of_choices(Tape& tape, const Var& chosen, int64_t top_k) {
  const int64_t tokens = chosen.shape()[0] / top_k, hidden = chosen.shape()[1];
  const Var by_token = p::transpose(tape, p::reshape(tape, chosen, {tokens, top_k, hidden}), 1, 2);
  return p::reshape(tape, p::sum_last(tape, by_token), {tokens, hidden});
}

trace::OpWork expert_work(const MoeExperts& op, int64_t hiddens, int64_t widths) {
  const auto rows = static_cast<double>(op.tokens() * op.top_k());
  const double flops = 6 * rows * static_cast<double>(op.hidden() * op.width());
  const int64_t of_row = (hiddens * op.hidden() + widths * op.width()) * size_of(op.x.dtype());
  const double bytes =
      static_cast<double>(op.gate_up.bytes() + op.down.bytes()) + rows * static_cast<double>(of_row);
  return {{flops, bytes}, {2 * flops, 2 * bytes}};
}

Var compose_by_expert(Tape& tape, const Var& x, const Tensor& ids, int64_t experts,
                      const ExpertProduct& product) {
  return in_order_of_choices(tape, ids, experts, [&](int64_t e, const RowsOfExpert& own) {
    return product(e, rows_of(tape, x, own.choices));
  });
}

Var matrix_of_expert(Tape& tape, const Var& matrices, int64_t expert, int64_t experts) {
  const int64_t rows = matrices.shape()[0] / experts;
  return p::narrow(tape, matrices, 0, expert * rows, rows);
}

}  // namespace temper::ops
