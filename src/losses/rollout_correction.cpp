#include "losses/rollout_correction.h"

#include <algorithm>
#include <cmath>

namespace temper::losses {
namespace {

bool masks(Correction correction) {
  return correction == Correction::kTokenMasked || correction == Correction::kSequenceMasked;
}

}  // namespace

RolloutWeights::RolloutWeights(const Policy& policy, const PolicyAnswer& answer)
    : policy_(policy), old_(answer.old), rollout_(answer.rollout), kept_(answer.kept) {
  double sum = 0;
  for (size_t i = 0; i < rollout_.size(); ++i) sum += log_ratio(i);
  of_answer_ = std::exp(sum);
}

double RolloutWeights::of(size_t i, PolicySums& sums) const {
  if (!rollout_.empty()) {
    const double gap = std::abs(old_[i] - rollout_[i]);
    sums.log_prob_gap += gap;
    sums.largest_gap = std::max(sums.largest_gap, gap);
  }
  double weight = 1;
  if (policy_.correction != Correction::kNone) {
    const bool token =
        policy_.correction == Correction::kTokenTruncated || policy_.correction == Correction::kTokenMasked;
    const double ratio = token ? std::exp(log_ratio(i)) : of_answer_;
    const bool above = ratio > policy_.correction_cap;
    const bool below = masks(policy_.correction) && ratio < policy_.correction_low;
    weight = ratio;
    if (above || below) weight = masks(policy_.correction) ? 0 : policy_.correction_cap;
    sums.corrected += above || below;
  }
  sums.correction += weight;
  return weight;
}

}  // namespace temper::losses
