#pragma once
#include <memory>

#include "layers/decoder.h"
#include "parallel/pipeline/timeline.h"
#include "training/model.h"
#include "training/objectives/objective.h"
#include "training/passes/trainer_options.h"

namespace temper::training {

// A causal language model. Its loss is the mean of -log p over the target tokens of the update, or what an
// objective says, and what the routers of its mixtures add to it.
class CausalModel : public Model {
 public:
  // `objective`: null for the next token. `ranks` train replicas of one model together.
  CausalModel(layers::Decoder& decoder, const TrainerOptions& options,
              std::shared_ptr<const Objective> objective, const parallel::UpdateRanks& ranks);

  layers::ParameterStore& parameters() override { return decoder_.parameters(); }
  std::string why_not_captured() const override;
  std::vector<MicroBatch> cut(const std::vector<data::PackedRow>& rows, int64_t max_tokens) const override;
  double training_flops(const MicroBatch& batch) const override;
  void begin_step(const std::vector<data::PackedRow>& rows, PendingStep& pending) override;
  void begin_passes(const StepData& data) override;
  Var loss(Tape& tape, StepData& data, size_t batch) override;
  bool pass_stages(StepData& data, const TapeOptions& tape, const LastBackward& last) override;
  void end_passes() override { decoder_.settle(); }
  void after_update(StepData& data) override;
  void report(const StepData& done, PendingStep& pending) const override;
  EvalResult evaluate(const std::vector<data::PackedRow>& rows) const override;

 private:
  const layers::ModelStages& stages() const { return decoder_.ranks().stages; }
  // Of the last part the loss, of others what the next one needs.
  Var pass(Tape& tape, StepData& data, size_t batch, const layers::Decoder::Part& part);
  Var loss_of(Tape& tape, const Var& hidden, size_t batch, StepData& data);
  // How often the tokens of these passes, of all ranks, chose each expert, by router: [experts + 1] int32.
  std::vector<Tensor> summed_counts(const std::vector<std::shared_ptr<layers::RouterTrace>>& passes) const;
  // The same of the passes that the update will have, which are computed here once more: of all of them, or
  // of each. Empty: each micro-batch finds its own.
  std::vector<std::vector<Tensor>> known_counts(const StepData& data) const;
  std::vector<Tensor> counts_of(const layers::RouterTrace& routers, size_t batch) const;
  Var with_balance(Tape& tape, const Var& loss, const std::shared_ptr<layers::RouterTrace>& routers,
                   size_t batch, StepData& data) const;
  void move_biases(const StepData& data);

  layers::Decoder& decoder_;
  TrainerOptions options_;
  std::shared_ptr<const Objective> objective_;  // null: the next token
  parallel::UpdateRanks ranks_;
  const parallel::PipelineCosts stage_costs_;  // of several stages
  std::unique_ptr<StepLoss> step_loss_;        // the objective's, of the step that is computed
  PendingStep* pending_ = nullptr;             // and where it reports
  std::vector<std::vector<Tensor>> counts_;    // known_counts(), while the update's passes are computed
};

}  // namespace temper::training
