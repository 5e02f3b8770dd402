#pragma once
#include <vector>

#include "layers/decoder.h"
#include "optimizers/adamw.h"
#include "training/checkpointing.h"
#include "training/objective.h"
#include "training/step_graphs.h"
#include "training/step_result.h"

namespace temper::training {

// What training does with the routers of mixtures.
struct RouterOptions {
  double balance_factor = 0;    // of the load balancing loss; 0: there is none
  bool global_balance = false;  // its loads are those of the whole update, else of each micro-batch
  // After each update the correction bias of an expert that got more tokens than the mean goes down by this,
  // of one that got fewer up (Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-
  // Experts", 2024); 0: biases stay.
  double bias_rate = 0;
};

struct TrainerOptions {
  double max_grad_norm = 1;        // 0: no clipping
  int64_t micro_batch_tokens = 0;  // at most so many tokens in one pass (at least one row); 0: all at once
  Checkpointing checkpointing = Checkpointing::kNone;
  double z_loss = 0;  // factor of the square of log Σ exp(logits); ops/cross_entropy
  CudaGraph cuda_graph = CudaGraph::kAuto;
  size_t num_sources = 1;  // above 1: the losses of steps are told for each source of the data, too
  RouterOptions routers = {};
  bool keep_states = false;  // of recurrent ops, for backward (TapeOptions)
};

// One optimizer update of a whole model at a time, over rows cut into micro-batches. The loss, unless there
// is an objective, is the mean over all target tokens of the step, so it does not depend on the cut.
class Trainer {
 public:
  // `ranks` train replicas of one model together.
  Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options,
          std::shared_ptr<const Objective> objective = nullptr,
          collectives::Group& ranks = collectives::alone());
  Trainer(const Trainer&) = delete;  // captured work knows where it is
  Trainer& operator=(const Trainer&) = delete;
  // Asks the device for a step and returns; on the CPU it is done then. Throws when no row has a target. Of
  // several ranks each gives its part of the rows, which may be none.
  PendingStep begin(const std::vector<data::PackedRow>& rows, double lr);
  StepResult step(const std::vector<data::PackedRow>& rows, double lr) { return begin(rows, lr).wait(); }
  EvalResult evaluate(const std::vector<data::PackedRow>& rows) const;
  const GraphCounts& graphs() const { return graphs_.counts(); }

 private:
  void compute(StepData& data);
  Var loss_of(Tape& tape, const Var& hidden, const MicroBatch& batch, StepData& data);
  // How often the tokens of these passes, of all ranks, chose each expert, by router: [experts + 1] int32.
  std::vector<Tensor> summed_counts(const std::vector<std::shared_ptr<layers::RouterTrace>>& passes) const;
  std::vector<Tensor> global_counts(const StepData& data) const;
  Var with_balance(Tape& tape, const Var& loss, const std::shared_ptr<layers::RouterTrace>& routers,
                   const std::vector<Tensor>& counts, StepData& data) const;
  void move_biases(const StepData& data);

  layers::Decoder& model_;
  optimizers::AdamW& optimizer_;
  TrainerOptions options_;
  std::shared_ptr<const Objective> objective_;  // null: the next token
  collectives::Group& ranks_;
  std::unique_ptr<StepLoss> step_loss_;  // the objective's, of the step that is computed
  PendingStep* pending_ = nullptr;       // and where it reports
  StepGraphs graphs_;
};

}  // namespace temper::training
