#include "channels/experts/expert_router.h"

#include <algorithm>

#include "layers/linear.h"
#include "primitives/primitives.h"

namespace temper::channels {

using layers::Pass;
using layers::RouterTrace;

ExpertRouter::ExpertRouter(const layers::Binding& binding, const ExpertsConfig& config)
    : routing_(config.routing),
      place_(binding.routers.add()),
      float32_(config.float32_router || binding.routers.options().float32),
      gate_(binding.weight(config.module + ".gate.weight")),
      linear_(binding.kernel<ops::Linear>(config.module + ".gate")),
      kernel_(binding.kernel<ops::MoeRouter>(config.module)) {
  if (config.biases) gate_bias_ = binding.weight(config.module + ".gate.bias");
  if (config.correction_bias) choice_bias_ = binding.weight(config.module + ".gate.correction_bias");
}

ops::ExpertsUpdate<Var> update_in(Tape& tape, const layers::AdapterRows& rows,
                                  const layers::BoundWeight& matrices) {
  const layers::Adapter::Update* found = update_of(rows, matrices);
  if (found == nullptr) return {};
  const layers::ParameterStore& own = rows.adapter->parameters();
  ops::ExpertsUpdate<Var> update{tape.leaf(own[found->a]), {}};
  for (const layers::Adapter::Slice& slice : found->slices)
    update.slices.push_back({slice.column, tape.leaf(own[slice.b]), slice.scale});
  return update;
}

Var ExpertRouter::logits(Tape& tape, const Var& given, const layers::AdaptedRows& rows) const {
  const auto wide = [&](const Var& value) {
    return float32_ ? primitives::cast(tape, value, DType::kF32) : value;
  };
  const layers::BoundWeight* const weights[] = {&gate_};
  const Var bias = gate_bias_.exists() ? wide(gate_bias_.leaf(tape)) : Var();
  if (rows.all().empty()) return ops::linear(tape, linear_, wide(given), wide(gate_.leaf(tape)), bias);
  return rows.by_pieces(tape, {given}, weights, [&](const layers::AdaptedRows::Piece& piece) {
    const Var x = wide(piece.inputs[0]);
    const Var y = ops::linear(tape, linear_, x, wide(piece.weights[0].value), bias);
    std::vector<Var> updates;
    const std::vector<Var> parts = layers::parts_of(tape, x, piece.rows);
    for (size_t i = 0; i < parts.size(); ++i)
      updates.push_back(of_adapter(tape, parts[i], piece.rows[i], wide));
    const auto none = [](const Var& update) { return !update.value.defined(); };
    if (std::all_of(updates.begin(), updates.end(), none)) return std::vector{y};
    for (size_t i = 0; i < parts.size(); ++i)
      if (none(updates[i]))
        updates[i] = tape.constant(Tensor::zeros({parts[i].shape()[0], y.shape()[1]}, y.dtype(),
                                                 MemoryTag::kActivations, y.value.device()));
    return std::vector{primitives::add(tape, y, primitives::concat_first(tape, updates))};
  })[0];
}

// What an adapter adds to the logits of its rows; Var{}: nothing.
template <class Widen>
Var ExpertRouter::of_adapter(Tape& tape, const Var& x, const layers::AdapterRows& rows,
                             const Widen& wide) const {
  ops::ExpertsUpdate<Var> found = update_in(tape, rows, gate_);
  if (found.slices.empty()) return {};
  for (auto& slice : found.slices) slice.b = wide(slice.b);
  return ops::compose_update(tape, x, wide(found.a), found.slices, routing_.experts);
}

ops::MoeRouter::Routes ExpertRouter::route(Tape& tape, const Var& x, const Pass& pass) const {
  RouterTrace::Router* const trace = pass.routers ? &pass.routers->routers[place_] : nullptr;
  ops::MoeRouter op;
  op.routing = routing_;
  op.bias = choice_bias_.exists() ? choice_bias_.value() : Tensor();
  op.given = pass.experts;
  if (trace == nullptr) return ops::moe_router(tape, kernel_, logits(tape, x, pass.rows), op, false);
  trace->parts.clear();
  if (trace->ids.defined()) op.given = trace->ids;
  const Var all = logits(tape, x, pass.rows);
  const auto& rows = pass.rows.all();
  if (!pass.routers->wanted || rows.size() <= 1) {
    if (pass.routers->wanted) op.counted = pass.counted;
    const auto routes = ops::moe_router(tape, kernel_, all, op, pass.routers->wanted);
    trace->ids = routes.ids;
    if (pass.routers->wanted) trace->parts.push_back({routes.counts, routes.sums});
    return routes;
  }
  return route_parts(tape, all, op, pass, *trace);
}

ops::MoeRouter::Routes ExpertRouter::route_parts(Tape& tape, const Var& all, const ops::MoeRouter& op,
                                                 const Pass& pass, RouterTrace::Router& trace) const {
  std::vector<Var> ids, weights;
  int64_t first = 0;
  for (const Var& logits : layers::parts_of(tape, all, pass.rows.all())) {
    ops::MoeRouter own = op;
    if (pass.counted.defined()) own.counted = pass.counted.narrow(0, std::ssize(trace.parts), 1);
    const int64_t count = logits.shape()[0];
    if (op.given.defined()) own.given = op.given.narrow(0, first, count);
    const auto routes = ops::moe_router(tape, kernel_, logits, own, true);
    ids.push_back(tape.constant(routes.ids));
    weights.push_back(routes.weights);
    trace.parts.push_back({routes.counts, routes.sums});
    first += count;
  }
  trace.ids = primitives::concat_first(tape, ids).value;
  return {trace.ids, primitives::concat_first(tape, weights), {}, {}};
}

}  // namespace temper::channels
