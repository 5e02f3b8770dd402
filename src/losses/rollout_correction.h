#pragma once
#include "losses/policy.h"

namespace temper::losses {

// The weights of one answer's tokens for what the rollout engine computed differently (Correction in
// policy.h).
class RolloutWeights {
 public:
  RolloutWeights(const Policy& policy, std::span<const double> old, std::span<const double> rollout);

  // Token i's weight; it and the gap between the log-probabilities are added to `sums`.
  double of(size_t i, PolicySums& sums) const;

 private:
  const Policy& policy_;
  std::span<const double> old_, rollout_;
  double of_answer_ = 1;  // p_old / p_rollout of the whole answer
};

}  // namespace temper::losses
