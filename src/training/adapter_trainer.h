#pragma once
#include <vector>

#include "training/trainer.h"

namespace temper::training {

// One adapter's part of a step: its rows, and what they update.
struct AdapterShare {
  layers::Adapter* adapter = nullptr;
  optimizers::AdamW* optimizer = nullptr;  // of the adapter's parameters
  const std::vector<data::PackedRow>* rows = nullptr;
  double lr = 0;
  uint64_t seed = 0;  // of dropout, keyed by the adapter's own count of updates
  size_t num_sources = 1;
  const Objective* objective = nullptr;  // null: the mean over the target tokens
};

// Updates adapters of one frozen model. The rows of all of them go through the model together, cut into
// micro-batches in the order of the shares; each adapter has its own loss (the mean over its target tokens),
// gradients, norm and clipping: what it would have alone, to rounding, and bit for bit where a micro-batch
// holds no other adapter's rows.
class AdapterTrainer {
 public:
  // TrainerOptions::num_sources is each share's own. `ranks` train replicas of the same adapters together,
  // given in the same order: each share then holds this rank's part of the rows, which may be none.
  AdapterTrainer(const layers::Decoder& model, const TrainerOptions& options,
                 const parallel::UpdateRanks& ranks = collectives::alone());
  // A result for each share; see Trainer::begin. The adapters are different ones.
  std::vector<PendingStep> begin(const std::vector<AdapterShare>& shares);

 private:
  struct Step;
  struct Part;
  std::vector<Part> parts_of(Step& step, const MicroBatch& batch, size_t begin, size_t end) const;
  struct Prepared;
  Prepared prepare(Step& step, size_t begin, size_t end) const;
  layers::Decoder::Options options_of(const Step& step, const Prepared& prepared) const;
  // Of the last part of the layers the losses' sum, of others what the next one needs.
  Var pass(Tape& tape, Step& step, const Prepared& prepared, const layers::Decoder::Part& at) const;
  void add_routers(Tape& tape, const layers::RouterTrace& routers, const Prepared& prepared, size_t part,
                   PendingStep& pending, std::vector<Var>& losses) const;
  void count_routers(const Step& step, std::vector<Prepared>& batches) const;
  void add_losses(Tape& tape, const Var& all, Step& step, const Prepared& prepared,
                  std::vector<Var>& losses) const;
  void run(Step& step, size_t begin, size_t end) const;
  void run_staged(Step& step, const std::vector<std::pair<size_t, size_t>>& cuts) const;

  const layers::Decoder& model_;
  TrainerOptions options_;
  parallel::UpdateRanks ranks_;
  const parallel::PipelineCosts stage_costs_;  // of several stages
};

}  // namespace temper::training
