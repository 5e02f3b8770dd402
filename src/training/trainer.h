#pragma once
#include <memory>
#include <vector>

#include "optimizers/adamw.h"
#include "training/causal_model.h"
#include "training/passes/step_result.h"
#include "training/step_graphs.h"

namespace temper::training {

// One optimizer update of a whole model at a time, over rows cut into micro-batches. The loss does not depend
// on the cut.
class Trainer {
 public:
  // `ranks` train replicas of one model together.
  Trainer(std::unique_ptr<Model> model, optimizers::AdamW& optimizer, const TrainerOptions& options,
          const parallel::UpdateRanks& ranks = collectives::alone());
  // Of a causal language model (CausalModel), which must outlive the trainer.
  Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options,
          std::shared_ptr<const Objective> objective = nullptr,
          const parallel::UpdateRanks& ranks = collectives::alone());
  Trainer(const Trainer&) = delete;  // captured work knows where it is
  Trainer& operator=(const Trainer&) = delete;
  // Asks the device for a step and returns; on the CPU it is done then. Throws when no row has a target. Of
  // several ranks each gives its part of the rows, which may be none.
  PendingStep begin(const std::vector<data::PackedRow>& rows, double lr);
  StepResult step(const std::vector<data::PackedRow>& rows, double lr) { return begin(rows, lr).wait(); }
  EvalResult evaluate(const std::vector<data::PackedRow>& rows) const { return model_->evaluate(rows); }
  const GraphCounts& graphs() const { return graphs_.counts(); }

 private:
  void compute(StepData& data);

  std::unique_ptr<Model> model_;
  optimizers::AdamW& optimizer_;
  TrainerOptions options_;
  parallel::UpdateRanks ranks_;
  StepGraphs graphs_;
};

}  // namespace temper::training
