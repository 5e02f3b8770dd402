#pragma once
#include <memory>
#include <vector>

#include "data/pack.h"
#include "device/transfer.h"
#include "layers/decoder.h"
#include "optimizers/adamw.h"
#include "training/checkpointing.h"

namespace temper::training {

struct TrainerOptions {
  double max_grad_norm = 1;        // 0: no clipping
  int64_t micro_batch_tokens = 0;  // at most so many tokens in one pass (at least one row); 0: all at once
  Checkpointing checkpointing = Checkpointing::kNone;
  double z_loss = 0;       // factor of the square of log Σ exp(logits); ops/cross_entropy
  size_t num_sources = 1;  // above 1: the losses of steps are told for each source of the data, too
};

// Of the documents of one source.
struct SourceLoss {
  double sum = 0;  // of -log p over its target tokens
  int64_t target_tokens = 0;
  double mean() const { return target_tokens == 0 ? 0 : sum / static_cast<double>(target_tokens); }
};

struct StepResult {
  double loss = 0;                       // mean over the step's target tokens, without z_loss
  double z_loss = 0;                     // what it adds
  std::vector<SourceLoss> sources = {};  // one for each, with TrainerOptions::num_sources above 1
  double grad_norm = 0;                  // before clipping
  int64_t tokens = 0, target_tokens = 0;
  double flops = 0;
};

// A document of a micro-batch, in which documents follow one another.
struct DocumentSpan {
  int64_t length = 0, target_tokens = 0;
  int32_t source = 0;
};

// A step that a device may still be computing.
class PendingStep {
 public:
  // Waits for this step alone. Throws when loss or gradients are not finite (the step has then changed
  // nothing).
  StepResult wait();

 private:
  friend class Trainer;
  StepResult known_;
  std::vector<std::shared_ptr<Reading>> losses_, z_losses_;  // one per micro-batch
  // One per micro-batch where sources are told apart: -log p of each token, and the documents they are of.
  std::vector<std::pair<std::shared_ptr<Reading>, std::vector<DocumentSpan>>> tokens_;
  std::shared_ptr<Reading> grad_norm_;
};

struct EvalResult {
  double loss = 0;  // mean over all target tokens
  int64_t target_tokens = 0;
  std::vector<SourceLoss> sources = {};  // as many as the rows name
};

// One optimizer update at a time, over rows cut into micro-batches. The loss is the mean over all target
// tokens of the step, so it does not depend on the cut.
class Trainer {
 public:
  Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options);
  // Asks the device for a step and returns; on the CPU it is done then. Throws when no row has a target.
  PendingStep begin(const std::vector<data::PackedRow>& rows, double lr);
  StepResult step(const std::vector<data::PackedRow>& rows, double lr) { return begin(rows, lr).wait(); }
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
