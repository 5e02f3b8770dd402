#include "layers/adapted.h"

#include <algorithm>

#include "layers/glue.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

using ops::LoraGroup;

bool drops(const AdapterRows& rows) {
  return rows.adapter != nullptr && rows.training && rows.adapter->config().dropout > 0;
}

// x cut where the rows of another adapter begin.
std::vector<Var> parts_of(Tape& tape, const Var& x, std::span<const AdapterRows> rows) {
  if (rows.size() == 1 || !x.value.defined()) return std::vector<Var>(rows.size(), x);
  std::vector<int64_t> counts;
  for (const AdapterRows& each : rows) counts.push_back(each.rows);
  return split_rows(tape, x, counts);
}

const Adapter::Update* update_of(const AdapterRows& rows, const std::string& weight) {
  return rows.adapter == nullptr ? nullptr : rows.adapter->update_of(weight);
}

}  // namespace

bool AdaptedParameters::any_replaces(const std::vector<std::string>& names) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](const AdapterRows& rows) {
    const auto replaced = [&](const std::string& name) { return rows.adapter->replaces(name); };
    return rows.adapter != nullptr && std::any_of(names.begin(), names.end(), replaced);
  });
}

Var AdaptedParameters::weight_of(Tape& tape, const AdapterRows& rows, const std::string& name) const {
  if (name.empty()) return {};
  return rows.adapter == nullptr ? base_->leaf(tape, name) : rows.adapter->weight(tape, *base_, name);
}

std::vector<AdaptedParameters::Piece> AdaptedParameters::pieces_of(
    Tape& tape, const std::vector<Var>& inputs, const std::vector<std::string>& names) const {
  const auto weights_of = [&](const AdapterRows& rows) {
    std::vector<Var> weights;
    for (const std::string& name : names) weights.push_back(weight_of(tape, rows, name));
    return weights;
  };
  if (!any_replaces(names)) return {{rows_, 0, inputs, weights_of({})}};
  if (rows_.size() == 1) return {{rows_, 0, inputs, weights_of(rows_.front())}};
  std::vector<Piece> pieces;
  int64_t first = 0;
  for (const AdapterRows& rows : rows_) {
    pieces.push_back({{&rows, 1}, first, {}, weights_of(rows)});
    first += rows.rows;
  }
  for (const Var& input : inputs) {
    const std::vector<Var> parts = parts_of(tape, input, rows_);
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i].inputs.push_back(parts[i]);
  }
  return pieces;
}

std::vector<Var> AdaptedParameters::by_rows(Tape& tape, const std::vector<Var>& inputs,
                                            const std::vector<std::string>& names, const PerRows& f) const {
  const std::vector<Piece> pieces = pieces_of(tape, inputs, names);
  if (pieces.size() == 1) return f(pieces.front());
  std::vector<std::vector<Var>> results;  // by output, by piece
  for (const Piece& piece : pieces) {
    const std::vector<Var> outputs = f(piece);
    results.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) results[i].push_back(outputs[i]);
  }
  std::vector<Var> joined;
  for (const std::vector<Var>& parts : results) joined.push_back(primitives::concat_first(tape, parts));
  return joined;
}

// What the adapter's A reads: its rows, some of whose elements are dropped while it trains.
Var AdaptedParameters::dropped(Tape& tape, const std::string& weight, const AdapterRows& rows,
                               const Var& x) const {
  if (!drops(rows)) return x;
  const auto p = static_cast<float>(rows.adapter->config().dropout);
  const ops::Dropout::Key key{rows.seed, rows.step, rows.adapter->update_of(weight)->a,
                              rows.first_row * x.shape()[1]};
  return ops::dropout(tape, *ops_, x, p, key);
}

Var AdaptedParameters::linear_of(Tape& tape, const std::string& name, const Piece& piece,
                                 Tensor* swiglu) const {
  const std::string weight = name + ".weight";
  const Var& x = piece.inputs[0];
  std::vector<LoraGroup<Var>> groups;
  const bool any_drops = std::any_of(piece.rows.begin(), piece.rows.end(), drops);
  const std::vector<Var> parts = any_drops ? parts_of(tape, x, piece.rows) : std::vector<Var>();
  int64_t first = 0;
  for (size_t i = 0; i < piece.rows.size(); ++i) {
    const AdapterRows& rows = piece.rows[i];
    if (const Adapter::Update* update = update_of(rows, weight)) {
      const ParameterStore& own = rows.adapter->parameters();
      LoraGroup<Var> group{first, rows.rows, {}, tape.leaf(own[update->a]), {}};
      if (drops(rows)) group.input = dropped(tape, weight, rows, parts[i]);
      for (const Adapter::Slice& slice : update->slices)
        group.slices.push_back({slice.column, tape.leaf(own[slice.b]), slice.scale});
      groups.push_back(std::move(group));
    }
    first += rows.rows;
  }
  const ops::BoundOps& ops = ops_->at(name);
  return groups.empty() ? ops::linear(tape, ops, x, piece.weights[0], piece.weights[1])
                        : ops::lora_linear(tape, ops, x, piece.weights[0], piece.weights[1], groups, swiglu);
}

Var AdaptedParameters::linear(Tape& tape, const std::string& name, const Var& x, bool bias,
                              Tensor* swiglu) const {
  return by_rows(tape, {x}, {name + ".weight", bias ? name + ".bias" : ""}, [&](const Piece& piece) {
    const bool all = piece.inputs[0].shape()[0] == x.shape()[0];
    return std::vector{linear_of(tape, name, piece, all ? swiglu : nullptr)};
  })[0];
}

Var AdaptedParameters::embedding(Tape& tape, const Tensor& ids) const {
  const std::string name = "embedding.weight";
  const ops::BoundOps& ops = ops_->at("embedding");
  const auto adapted = [&](const AdapterRows& rows) { return update_of(rows, name) != nullptr; };
  if (!any_replaces({name}) && std::none_of(rows_.begin(), rows_.end(), adapted))
    return ops::embedding(tape, ops, ids, tape.leaf(base_->at(name)));
  std::vector<Var> pieces;
  int64_t first = 0;
  for (const AdapterRows& rows : rows_) {
    const Tensor own_ids = ids.narrow(0, first, rows.rows);
    Var y = ops::embedding(tape, ops, own_ids, weight_of(tape, rows, name));
    if (const Adapter::Update* update = update_of(rows, name)) {
      const ParameterStore& own = rows.adapter->parameters();
      const Adapter::Slice& slice = update->slices.front();
      const Var low = ops::embedding(tape, ops, own_ids, tape.leaf(own[update->a]));
      const Var change = ops::linear(tape, ops, low, tape.leaf(own[slice.b]));
      y = primitives::add(tape, y, primitives::scale(tape, change, slice.scale));
    }
    pieces.push_back(y);
    first += rows.rows;
  }
  return pieces.size() == 1 ? pieces.front() : primitives::concat_first(tape, pieces);
}

// An adapted head is one product with wider rows: [hidden | scale · hidden Aᵀ] [weight | B]ᵀ.
ops::CrossEntropy::Vars AdaptedParameters::loss(Tape& tape, const std::string& head, const Var& hidden,
                                                const Tensor& targets,
                                                const ops::CrossEntropy::Factors& factors) const {
  const AdapterRows rows = rows_.empty() ? AdapterRows{} : rows_.front();
  invariant(rows_.size() <= 1, "a loss is of one adapter's rows");
  const ops::BoundOps& ops = ops_->at("head");
  const Var weight = weight_of(tape, rows, head);
  const Adapter::Update* update = update_of(rows, head);
  if (update == nullptr) return ops::cross_entropy(tape, ops, hidden, weight, targets, factors);
  const ParameterStore& own = rows.adapter->parameters();
  const Adapter::Slice& slice = update->slices.front();
  const Var low = ops::linear(tape, ops, dropped(tape, head, rows, hidden), tape.leaf(own[update->a]));
  const Var wide = primitives::concat_last(tape, hidden, primitives::scale(tape, low, slice.scale));
  return ops::cross_entropy(tape, ops, wide, primitives::concat_last(tape, weight, tape.leaf(own[slice.b])),
                            targets, factors);
}

}  // namespace temper::layers
