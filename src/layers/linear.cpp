#include "layers/linear.h"

#include <algorithm>

#include "base/error.h"
#include "layers/glue.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

bool drops(const AdapterRows& rows) {
  return rows.adapter != nullptr && rows.training && rows.adapter->config().dropout > 0;
}

primitives::Matrix rows_of(Tape& tape, const primitives::Matrix& weight, const Linear::Columns& wanted) {
  return primitives::rows_of(tape, weight, wanted.first, wanted.count);
}

// What an update that has all of a weight's rows adds to the wanted ones.
ops::LoraGroup<Var>::Slice slice_of(Tape& tape, const Adapter::Slice& slice, const ParameterStore& adapter,
                                    const Linear::Columns& wanted) {
  const primitives::Matrix b = tape.leaf(adapter[slice.b]);
  invariant(slice.column == 0 && wanted.first + wanted.count <= b.shape()[0],
            "a linear whose columns are wanted is one module");
  return {0, rows_of(tape, b, wanted).value, slice.scale};
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

Var Linear::run(Tape& tape, const AdaptedRows::Piece& piece, const ops::SwigluInProducts& swiglu,
                const Columns* wanted) const {
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
        group.slices.push_back(
            wanted == nullptr ? ops::LoraGroup<Var>::Slice{slice.column, tape.leaf(own[slice.b]), slice.scale}
                              : slice_of(tape, slice, own, *wanted));
      groups.push_back(std::move(group));
    }
    first += rows.rows;
  }
  const Var bias = this->bias(tape, piece.weights[1].value);
  const primitives::Matrix weight =
      wanted == nullptr ? piece.weights[0] : rows_of(tape, piece.weights[0], *wanted);
  return groups.empty() ? ops::linear(tape, linear_, x, weight, bias)
                        : ops::lora_linear(tape, adapted_, x, weight, bias, groups,
                                           piece.all ? swiglu : ops::SwigluInProducts{});
}

Var Linear::operator()(Tape& tape, const Var& given, const AdaptedRows& rows,
                       const ops::SwigluInProducts& swiglu) const {
  if (!output_) return multiply(tape, given, rows, swiglu, nullptr);
  // The next module reads rounded results, which a fused product with swiglu does not have.
  return (*output_)(tape, multiply(tape, given, rows, {.gate_up = swiglu.gate_up}, nullptr));
}

Var Linear::columns(Tape& tape, const Var& x, const AdaptedRows& rows, const Columns& wanted) const {
  invariant(!bias_.exists(), "columns of a linear have no bias");
  const Var y = multiply(tape, x, rows, {}, &wanted);
  return output_ ? (*output_)(tape, y) : y;
}

Var Linear::multiply(Tape& tape, const Var& given, const AdaptedRows& rows,
                     const ops::SwigluInProducts& swiglu, const Columns* wanted) const {
  const Var x = input_ ? (*input_)(tape, given) : given;
  if (rows.all().empty()) {
    const primitives::Matrix weight = weight_.matrix(tape);
    return ops::linear(tape, linear_, x, wanted == nullptr ? weight : rows_of(tape, weight, *wanted),
                       bias(tape, bias_.leaf(tape)));
  }
  const BoundWeight* const weights[] = {&weight_, &bias_};
  const std::vector<Var> inputs = input_ ? std::vector{x, given} : std::vector{x};
  return rows.by_pieces(tape, inputs, weights, [&](const AdaptedRows::Piece& piece) {
    return std::vector{run(tape, piece, swiglu, wanted)};
  })[0];
}

}  // namespace temper::layers
