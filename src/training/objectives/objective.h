#pragma once
#include <memory>
#include <span>
#include <vector>

#include "layers/decoder.h"
#include "training/passes/step_result.h"

namespace temper::training {

// Tokens of a pass that are one learner's: the model's own, or an adapter's. Context ranks know all targets
// and documents, and have the hidden states of their own tokens.
struct LossInputs {
  Var hidden;      // [own tokens, hidden], after the final norm
  Tensor targets;  // [tokens] int32
  std::span<const DocumentSpan> documents;
  layers::TokenCut cut = {};
  layers::AdapterRows rows = {};  // whose the own tokens are

  Tensor own_targets() const { return cut.own_of(targets); }
};

// The loss of one step. It is asked for the step's rows (of this rank) in their order, micro-batch by
// micro-batch, and puts what people want to know of it into `pending`.
class StepLoss {
 public:
  virtual ~StepLoss() = default;
  virtual Var of(Tape& tape, const LossInputs& inputs, PendingStep& pending) = 0;
};

// A pass's part of the loss, [1] float32, whose gradient by hidden states is there already: what `hidden`, a
// variable of their values, was given (undefined: nothing was).
Var loss_with_gradient(Tape& tape, const LossInputs& inputs, const Var& hidden, double loss);

// What a learner minimizes, where that is not the mean of -log p over the step's target tokens. The model and
// whatever else it needs must outlive it.
class Objective {
 public:
  virtual ~Objective() = default;
  // An Error, on all ranks, for an update's rows that it cannot judge. `rows`, here and below, are this
  // rank's, while counts and means are over those of all `ranks`, which have other rows; all ranks of the run
  // call the same functions.
  virtual void check(const std::vector<data::PackedRow>& rows, collectives::Group& ranks) const {
    static_cast<void>(rows);
    static_cast<void>(ranks);
  }
  // `adapter` may be null: the model alone.
  virtual std::unique_ptr<StepLoss> begin(const std::vector<data::PackedRow>& rows,
                                          const layers::Adapter* adapter,
                                          collectives::Group& ranks) const = 0;
  virtual EvalResult evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                              const parallel::UpdateRanks& ranks) const = 0;
};

}  // namespace temper::training
