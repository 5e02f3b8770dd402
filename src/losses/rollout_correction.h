#pragma once
#include "losses/policy.h"

namespace temper::losses {

// The weights of one answer's tokens for what the rollout engine computed differently (Correction in
// policy.h).
class RolloutWeights {
 public:
  RolloutWeights(const Policy& policy, const PolicyAnswer& answer);

  // Token i's weight; it and the gap between the log-probabilities are added to `sums`.
  double of(size_t i, PolicySums& sums) const;

 private:
  // log p_old - log p_rollout of a token.
  double log_ratio(size_t i) const { return old_[i] - rollout_[i] + (kept_.empty() ? 0 : kept_[i]); }

  const Policy& policy_;
  std::span<const double> old_, rollout_, kept_;
  double of_answer_ = 1;  // p_old / p_rollout of the whole answer
};

}  // namespace temper::losses
