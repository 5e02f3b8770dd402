#pragma once
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/local/local.h"
#include "device/transfer.h"
#include "losses/logit_statistics.h"
#include "losses/policy.h"
#include "parallel/update_ranks.h"
#include "training/passes/micro_batch.h"
#include "training/passes/router_loads.h"
#include "training/passes/stage_times.h"

namespace temper::training {

// Of the documents of one source.
struct SourceLoss {
  double sum = 0;  // of -log p over its target tokens
  int64_t target_tokens = 0;
  double mean() const { return target_tokens == 0 ? 0 : sum / static_cast<double>(target_tokens); }
};

// What preference learning wants to know of answers: sums until mean() divides them.
struct PreferenceResult {
  double chosen_reward = 0, rejected_reward = 0;  // what the model implies that answers are worth
  double chosen_logp = 0, rejected_logp = 0;      // Σ log p of an answer's tokens
  int64_t chosen = 0, rejected = 0;               // answers; good and bad ones where they are not paired
  int64_t pairs = 0, correct = 0;                 // correct: the chosen answer has the higher reward
  int64_t undecided = 0;                          // pairs whose rewards are rounding alone; none is correct
  double kl = 0;                                  // KTO's z0, of the whole step

  void add(const PreferenceResult& other);  // kl becomes the other's
  PreferenceResult mean() const;
  double margin() const { return chosen_reward - rejected_reward; }  // of a mean
  // Undecided pairs are right half of the time.
  double accuracy() const {
    const double right = static_cast<double>(correct) + 0.5 * static_cast<double>(undecided);
    return pairs == 0 ? 0 : right / static_cast<double>(pairs);
  }
};

// What policy gradients tell of a step: sums over its sampled tokens.
struct PolicyResult {
  losses::PolicySums sums;
  double entropy = 0;  // of the policy at each token, at its temperature; a sum

  void add(const PolicyResult& other) {
    sums.add(other.sums);
    entropy += other.entropy;
  }
};

// What distillation tells: sums over target tokens until mean() divides them (losses/distillation.h).
struct DistillationResult {
  double divergence = 0, cross_entropy = 0, teacher_entropy = 0, agreement = 0;
  int64_t tokens = 0;
  // Only if requested (Distill::watch_logits); never of a teacher of which only some logits are known.
  losses::LogitStatistics student_logits = {}, teacher_logits = {};

  void add(const DistillationResult& other);
  DistillationResult mean() const;
};

// What a critic tells of a step: sums over its sampled tokens.
struct ValueResult {
  int64_t clipped = 0, tokens = 0;  // clipped: whose values have no gradient

  void add(const ValueResult& other) {
    clipped += other.clipped;
    tokens += other.tokens;
  }
};

struct StepResult {
  double loss = 0;          // mean over the step's target tokens, without z_loss; or the objective's
  double z_loss = 0;        // what it adds
  double balance_loss = 0;  // what the routers' load balancing adds to the loss, which leaves it out
  std::vector<RouterLoad> routers = {};  // of a mixture
  std::vector<SourceLoss> sources = {};  // one for each, with TrainerOptions::num_sources above 1
  std::optional<PreferenceResult> preference = {};
  std::optional<PolicyResult> policy = {};
  std::optional<DistillationResult> distillation = {};
  std::optional<ValueResult> values = {};
  std::optional<PipelineResult> pipeline = {};  // of several stages
  double grad_norm = 0;                         // before clipping
  int64_t tokens = 0, target_tokens = 0;
  double flops = 0;
};

// What the ranks know of one step, added up. Target tokens and the norm are of all of them already, means are
// still sums.
void sum_over(collectives::Group& ranks, StepResult& result);
void sum_over(collectives::Group& ranks, std::vector<SourceLoss>& sources);
// A rank without rows may have none.
void sum_over(collectives::Group& ranks, std::optional<PreferenceResult>& sums);
void sum_over(collectives::Group& ranks, std::optional<PolicyResult>& sums);
void sum_over(collectives::Group& ranks, std::optional<DistillationResult>& sums);
void sum_over(collectives::Group& ranks, std::optional<ValueResult>& sums);
void sum_over(collectives::Group& ranks, std::optional<PipelineResult>& sums);

// A step that a device may still be computing. Ranks share an update: each has its part of the rows, and all
// counts, scales and results are those of the whole update. There is one rule: gradients are sums over target
// tokens, divided once by the count of the whole update.
class PendingStep {
 public:
  // Of rows that will be trained on, those of this rank, which may be none. Throws when no rank's rows have a
  // target. Where no rank has a row, the gradient is 0.
  PendingStep(const std::vector<data::PackedRow>& rows, size_t num_sources,
              const parallel::UpdateRanks& ranks = collectives::alone());

  float scale() const { return static_cast<float>(1 / at_least_one(known_.target_tokens)); }
  // Of the rows; of ranks that have the same ones, one counts it.
  void add_work(int64_t tokens, double flops);
  // Of what an objective computes besides the model's passes, where their loss is formed.
  void add_objective_work(double flops);
  // Of the rank's tokens of one micro-batch, each read when it is computed; `documents` has what is here of
  // them. `z` and `nll` may be undefined: not needed.
  void add_loss(const Tensor& loss, const Tensor& z, const Tensor& nll, std::vector<DocumentSpan> documents);
  // Of the rows of one micro-batch, known already where their loss is formed: of ranks that have the same
  // ones, one counts it.
  void add_preference(double loss, const PreferenceResult& sums);
  void add_policy(double loss, const PolicyResult& sums);  // the same
  // Of the rank's tokens of one micro-batch, known already.
  void add_distillation(double loss, const DistillationResult& sums);
  void add_values(double loss, const ValueResult& sums);
  // Before the first micro-batch, by all ranks; without effect where the model has no routers. Then of each
  // micro-batch what its routers recorded, and what they add to the loss, or undefined.
  void watch_routers(const layers::Decoder& model);
  void add_routers(const layers::RouterTrace& trace, size_t part, const Tensor& balance);
  float inverse_tokens() const { return static_cast<float>(1 / at_least_one(update_tokens_)); }
  void set_stage_times(const std::optional<StageTimes>& times) { stage_times_ = times; }
  void set_grad_norm(const Tensor& norm);  // not of a step that only reads its rows

  // Waits for this step alone, and for the other ranks'. Throws when loss or gradients are not finite (the
  // step has then changed nothing).
  StepResult wait();

 private:
  template <class Sums>
  void add_known(double loss, std::optional<Sums>& all, const Sums& sums);

  static double at_least_one(int64_t count) { return static_cast<double>(std::max<int64_t>(1, count)); }

  parallel::UpdateRanks ranks_;
  StepResult known_;
  int64_t update_tokens_ = 0;  // of this rank; of all of them, where routers are watched
  std::vector<std::shared_ptr<Reading>> losses_, z_losses_, balances_;  // one per micro-batch
  PendingLoads routers_;
  // One per micro-batch where sources are reported separately: -log p of each token, and their documents.
  std::vector<std::pair<std::shared_ptr<Reading>, std::vector<DocumentSpan>>> tokens_;
  std::shared_ptr<Reading> grad_norm_;
  std::optional<StageTimes> stage_times_;
};

struct EvalResult {
  double loss = 0;  // mean over all target tokens
  int64_t target_tokens = 0;
  std::vector<SourceLoss> sources = {};  // as many as the rows name
  std::optional<PreferenceResult> preference = {};
  std::optional<DistillationResult> distillation = {};
};
// Of the model, with an adapter unless that is null, on all ranks' rows.
EvalResult evaluate(const layers::Decoder& model, const layers::Adapter* adapter,
                    const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens,
                    const parallel::UpdateRanks& ranks = collectives::alone());

}  // namespace temper::training
