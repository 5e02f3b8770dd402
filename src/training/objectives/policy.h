#pragma once
#include "losses/policy.h"
#include "training/objectives/objective.h"

namespace temper::training {

struct PolicyOptions {
  losses::Policy loss = {};
  double temperature = 1;     // of the policy: what logits are divided by
  double entropy_factor = 0;  // of the mean entropy over the update's sampled tokens, which is added
  int64_t most_tokens = 0;    // the longest answer allowed (losses::PolicyUpdate)
  bool tells_kl = false;      // rows know the reference where the loss does not need it, too
  // Whether corrections know what a truncation left out when tokens were sampled (TokenColumns::kept).
  bool corrects_truncation = false;
};

// The loss of sampled answers (losses/policy.h) over an update's rows, whose targets are the sampled tokens
// (PackedRow::sampled), and whose log-probabilities are those of rollouts (ops/token_log_probs). A
// document is an answer behind its prompt, or several answers that share it (PackedRow::answers). What the
// loss divides by are counts of the whole update: neither micro-batches nor ranks change it.
//
// The head runs over sampled tokens alone, some whole answers at a time, each with its backward pass.
class PolicyGradient : public Objective {
 public:
  PolicyGradient(const layers::Decoder& model, const PolicyOptions& options, int64_t micro_batch_tokens)
      : model_(model), options_(options), micro_batch_tokens_(micro_batch_tokens) {}

  std::unique_ptr<StepLoss> begin(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                                  collectives::Group& ranks) const override;
  // The mean of -log p over the rows' targets: what answers are worth, rollouts say (recipes/grpo).
  EvalResult evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                      const parallel::UpdateRanks& ranks) const override;

 private:
  class Step;

  const layers::Decoder& model_;
  PolicyOptions options_;
  int64_t micro_batch_tokens_;
};

// log p of every target of the rows, in their order, by a model with an adapter or (null) without, on all
// stages of a pipeline, which call it together.
std::vector<float> target_log_probs(const layers::Decoder& model, const layers::Adapter* adapter,
                                    const std::vector<data::PackedRow>& rows, double temperature,
                                    int64_t micro_batch_tokens);

}  // namespace temper::training
