#pragma once
#include <functional>
#include <span>

#include "layers/adapter.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/selection.h"

// The modules of a model, whose rows may belong to adapters. Without adapters they are the plain ops.
namespace temper::layers {

// A model's parameters as the rows of one pass see them.
class AdaptedParameters {
 public:
  // `rows`: all rows of the pass; none: the model alone.
  AdaptedParameters(const ParameterStore& base, const ops::BoundOps& ops, std::vector<AdapterRows> rows)
      : base_(&base), ops_(&ops), rows_(std::move(rows)) {}

  // x weightᵀ + bias with the module's parameters, NAME.weight and NAME.bias. One product for all rows.
  // `swiglu`: see ops::lora_linear; left alone where no kernel makes it.
  Var linear(Tape& tape, const std::string& name, const Var& x, bool bias, Tensor* swiglu = nullptr) const;
  Var embedding(Tape& tape, const Tensor& ids) const;  // rows of embedding.weight
  // The loss of rows that are all of one adapter; `head` is the name of the head's weight.
  ops::CrossEntropy::Vars loss(Tape& tape, const std::string& head, const Var& hidden, const Tensor& targets,
                               const ops::CrossEntropy::Factors& factors) const;

  // Calls f for all rows at once, or, where an adapter trains copies of the weights, for each adapter's rows,
  // and puts the results together. Inputs may be Var{}, but for the first.
  struct Piece {
    std::span<const AdapterRows> rows;  // whose they are
    int64_t first = 0;                  // where they begin
    std::vector<Var> inputs;
    std::vector<Var> weights;  // as many as names; Var{} for ""
  };
  using PerRows = std::function<std::vector<Var>(const Piece& piece)>;
  std::vector<Var> by_rows(Tape& tape, const std::vector<Var>& inputs, const std::vector<std::string>& names,
                           const PerRows& f) const;

 private:
  std::vector<Piece> pieces_of(Tape& tape, const std::vector<Var>& inputs,
                               const std::vector<std::string>& names) const;
  bool any_replaces(const std::vector<std::string>& names) const;
  Var weight_of(Tape& tape, const AdapterRows& rows, const std::string& name) const;
  Var dropped(Tape& tape, const std::string& weight, const AdapterRows& rows, const Var& x) const;
  Var linear_of(Tape& tape, const std::string& name, const Piece& piece, Tensor* swiglu) const;

  const ParameterStore* base_;
  const ops::BoundOps* ops_;
  std::vector<AdapterRows> rows_;
};

}  // namespace temper::layers
