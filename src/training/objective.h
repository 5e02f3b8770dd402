#pragma once
#include <memory>
#include <span>
#include <vector>

#include "layers/decoder.h"
#include "training/step_result.h"

namespace temper::training {

// Tokens of a pass that are one learner's: the model's own, or an adapter's.
struct Learnt {
  Var hidden;      // [tokens, hidden], after the final norm
  Tensor targets;  // [tokens] int32
  std::span<const DocumentSpan> documents;
  layers::AdapterRows rows = {};
};

// The loss of one step. It is asked for the step's rows in their order, micro-batch by micro-batch, and puts
// what people want to know of it into `pending`.
class StepLoss {
 public:
  virtual ~StepLoss() = default;
  virtual Var of(Tape& tape, const Learnt& learnt, PendingStep& pending) = 0;
};

// What a learner minimises, where that is not the mean of -log p over the step's target tokens. The model and
// whatever else it needs must outlive it.
class Objective {
 public:
  virtual ~Objective() = default;
  // An Error for a step's rows that it cannot judge.
  virtual void check(const std::vector<data::PackedRow>& rows) const { static_cast<void>(rows); }
  // `adapter` may be null: the model alone.
  virtual std::unique_ptr<StepLoss> begin(const std::vector<data::PackedRow>& rows,
                                          const layers::Adapter* adapter) const = 0;
  virtual EvalResult evaluate(const std::vector<data::PackedRow>& rows,
                              const layers::Adapter* adapter) const = 0;
};

}  // namespace temper::training
