#include "layers/linear.h"

#include <algorithm>

#include "layers/glue.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

bool drops(const AdapterRows& rows) {
  return rows.adapter != nullptr && rows.training && rows.adapter->config().dropout > 0;
}

}  // namespace

Linear::Linear(const Binding& binding, const std::string& name, bool bias)
    : weight_(binding.weight(name + ".weight")),
      bias_(bias ? binding.weight(name + ".bias") : BoundWeight()),
      input_(binding.input_quantizer(name)),
      output_(binding.activation_quantizer(name + ".output_quantizer")),
      linear_(binding.kernel<ops::Linear>(name)),
      adapted_(binding.kernel<ops::LoraLinear>(name)),
      dropout_(binding.kernel<ops::Dropout>(name)) {
  const Placement& placement = binding.parameters.layout()[weight_.id() % binding.parameters.size()];
  columns_ = placement.whole()[1];
  first_column_ = placement.held().columns.whole;
  if (placement.held().columns.count < columns_) no_bias_ = binding.added_elsewhere(bias_);
}

Var Linear::bias(Tape& tape, const Var& whole) const {
  return no_bias_.defined() ? tape.constant(no_bias_) : whole;
}

Var Linear::dropped(Tape& tape, const AdapterRows& rows, const Var& x) const {
  if (!drops(rows)) return x;
  const auto p = static_cast<float>(rows.adapter->config().dropout);
  const auto drop = [&](const Var& some, int64_t first) {
    return ops::dropout(tape, dropout_, some, p,
                        {rows.seed, rows.step, rows.adapter->update_of(weight_)->a,
                         (rows.first_row + first) * columns_ + first_column_, columns_});
  };
  if (rows.pieces.empty()) return drop(x, 0);
  std::vector<int64_t> counts;
  for (const TokenRange& piece : rows.pieces) counts.push_back(piece.count);
  std::vector<Var> parts = split_rows(tape, x, counts);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = drop(parts[i], rows.pieces[i].first);
  return primitives::concat_first(tape, parts);
}

Var Linear::run(Tape& tape, const AdaptedRows::Piece& piece, const ops::SwigluInProducts& swiglu) const {
  const Var& x = piece.inputs[0];
  std::vector<ops::LoraGroup<Var>> groups;
  // The inputs of adapters are not rounded, as inference engines compute adapters of a quantized base.
  const bool apart = input_ != nullptr || std::any_of(piece.rows.begin(), piece.rows.end(), drops);
  const std::vector<Var> parts = apart ? parts_of(tape, piece.inputs.back(), piece.rows) : std::vector<Var>();
  int64_t first = 0;
  for (size_t i = 0; i < piece.rows.size(); ++i) {
    const AdapterRows& rows = piece.rows[i];
    if (const Adapter::Update* update = update_of(rows, weight_)) {
      const ParameterStore& own = rows.adapter->parameters();
      ops::LoraGroup<Var> group{first, rows.rows, {}, tape.leaf(own[update->a]), {}};
      if (apart) group.input = dropped(tape, rows, parts[i]);
      for (const Adapter::Slice& slice : update->slices)
        group.slices.push_back({slice.column, tape.leaf(own[slice.b]), slice.scale});
      groups.push_back(std::move(group));
    }
    first += rows.rows;
  }
  const Var bias = this->bias(tape, piece.weights[1].value);
  return groups.empty() ? ops::linear(tape, linear_, x, piece.weights[0], bias)
                        : ops::lora_linear(tape, adapted_, x, piece.weights[0], bias, groups,
                                           piece.all ? swiglu : ops::SwigluInProducts{});
}

Var Linear::operator()(Tape& tape, const Var& given, const AdaptedRows& rows,
                       const ops::SwigluInProducts& swiglu) const {
  if (!output_) return multiply(tape, given, rows, swiglu);
  // The next module reads rounded results, which a fused product with swiglu does not have.
  return (*output_)(tape, multiply(tape, given, rows, {.gate_up = swiglu.gate_up}));
}

Var Linear::multiply(Tape& tape, const Var& given, const AdaptedRows& rows,
                     const ops::SwigluInProducts& swiglu) const {
  const Var x = input_ ? (*input_)(tape, given) : given;
  if (rows.all().empty())
    return ops::linear(tape, linear_, x, weight_.matrix(tape), bias(tape, bias_.leaf(tape)));
  const BoundWeight* const weights[] = {&weight_, &bias_};
  const std::vector<Var> inputs = input_ ? std::vector{x, given} : std::vector{x};
  return rows.by_pieces(tape, inputs, weights, [&](const AdaptedRows::Piece& piece) {
    return std::vector{run(tape, piece, swiglu)};
  })[0];
}

}  // namespace temper::layers
