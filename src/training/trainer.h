#pragma once
#include <vector>

#include "data/pack.h"
#include "layers/decoder.h"
#include "optimizers/adamw.h"
#include "training/checkpointing.h"

namespace temper::training {

struct TrainerOptions {
  double max_grad_norm = 1;        // 0: no clipping
  int64_t micro_batch_tokens = 0;  // at most so many tokens in one pass (at least one row); 0: all at once
  Checkpointing checkpointing = Checkpointing::kNone;
};

struct StepResult {
  double loss = 0;       // mean over the step's target tokens
  double grad_norm = 0;  // before clipping
  int64_t tokens = 0, target_tokens = 0;
  double flops = 0;
};

struct EvalResult {
  double loss = 0;  // mean over all target tokens
  int64_t target_tokens = 0;
};

// One optimizer update at a time, over rows cut into micro-batches. The loss is the mean over all target
// tokens of the step, so it does not depend on the cut.
class Trainer {
 public:
  Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options);
  // Throws when no row has a target, and when loss or gradients are not finite (the model is left as it was).
  StepResult step(const std::vector<data::PackedRow>& rows, double lr);
  EvalResult evaluate(const std::vector<data::PackedRow>& rows) const;

 private:
  layers::Decoder& model_;
  optimizers::AdamW& optimizer_;
  TrainerOptions options_;
};

// Consecutive rows whose tokens fit the budget (0: no limit); every group has at least one row.
std::vector<std::pair<size_t, size_t>> cut_micro_batches(const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens);

}  // namespace temper::training
