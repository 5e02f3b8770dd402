#include "losses/policy.h"

#include <algorithm>
#include <cmath>

#include "losses/policy_checks.h"
#include "losses/rollout_correction.h"

namespace temper::losses {
namespace {

// A token's loss and its derivative: by the log of the ratio where kind is clip, by log p_now where it is
// cispo.
struct Term {
  double loss = 0, slope = 0;
};

Term clipped(const Policy& policy, double ratio, double advantage, PolicySums& sums) {
  const double low = 1 - policy.clip_low, high = 1 + policy.clip_high;
  if (advantage > 0 && ratio > high) {
    ++sums.clipped_high;
    return {-high * advantage, 0};
  }
  if (advantage < 0 && ratio < low) {
    ++sums.clipped_low;
    return {-low * advantage, 0};
  }
  if (advantage < 0 && policy.dual_clip > 0 && ratio > policy.dual_clip) {
    ++sums.dual_clipped;
    return {-policy.dual_clip * advantage, 0};
  }
  return {-ratio * advantage, -ratio * advantage};
}

Term weighted_log_prob(const Policy& policy, double ratio, double advantage, double now, PolicySums& sums) {
  if (ratio > policy.ratio_max) ++sums.clipped_high;
  const double slope = -std::min(ratio, policy.ratio_max) * advantage;
  return {slope * now, slope};
}

double weight_of_token(const Policy& policy, const PolicyUpdate& update, size_t tokens) {
  const auto answers = static_cast<double>(update.answers);
  switch (policy.mean) {
    case PolicyMean::kAnswers:
      return 1 / (answers * static_cast<double>(tokens));
    case PolicyMean::kTokens:
      return 1 / static_cast<double>(update.tokens);
    case PolicyMean::kConstant:
      return 1 / (answers * static_cast<double>(update.most_tokens));
  }
  return 0;
}

double sequence_ratio(const PolicyAnswer& answer) {
  double sum = 0;
  for (size_t i = 0; i < answer.now.size(); ++i) sum += answer.now[i] - answer.old[i];
  return std::exp(sum / static_cast<double>(answer.now.size()));
}

// The loss of the advantages. A ratio of the answer depends on each of its tokens alike.
void add_advantages(const Policy& policy, const PolicyAnswer& answer, double share,
                    std::span<double> gradients, PolicySums& sums) {
  const bool shared = policy.level == RatioLevel::kSequence;
  const size_t tokens = answer.now.size();
  const RolloutWeights weights(policy, answer);
  const double of_answer = shared ? sequence_ratio(answer) : 0;
  double slope_of_answer = 0;
  for (size_t i = 0; i < tokens; ++i) {
    const double ratio = shared ? of_answer : std::exp(answer.now[i] - answer.old[i]);
    const double advantage = answer.advantages[i], weight = weights.of(i, sums);
    sums.ratio += ratio;
    sums.lowest_ratio = std::min(sums.lowest_ratio, ratio);
    sums.highest_ratio = std::max(sums.highest_ratio, ratio);
    gradients[i] = 0;
    if (advantage == 0 || weight == 0) continue;  // an infinite ratio would make NaN of them
    const Term term = policy.kind == PolicyKind::kClip
                          ? clipped(policy, ratio, advantage, sums)
                          : weighted_log_prob(policy, ratio, advantage, answer.now[i], sums);
    sums.loss += share * weight * term.loss;
    if (shared && policy.kind == PolicyKind::kClip)
      slope_of_answer += share * weight * term.slope;
    else
      gradients[i] = share * weight * term.slope;
  }
  if (slope_of_answer != 0)
    for (double& gradient : gradients) gradient += slope_of_answer / static_cast<double>(tokens);
}

void add_divergence(const Policy& policy, const PolicyAnswer& answer, double share,
                    std::span<double> gradients, PolicySums& sums) {
  for (size_t i = 0; i < answer.reference.size(); ++i) {
    KlEstimate term = kl_estimate(policy.kl, answer.reference[i] - answer.now[i]);
    sums.kl += term.value;
    if (policy.beta == 0) continue;
    if (policy.unbiased_kl) {
      const double ratio = std::exp(answer.now[i] - answer.old[i]);
      term = {ratio * term.value, ratio * (term.value + term.slope)};
    }
    sums.kl_loss += share * policy.beta * term.value;
    sums.loss += share * policy.beta * term.value;
    gradients[i] += share * policy.beta * term.slope;
  }
}

}  // namespace

KlEstimate kl_estimate(KlEstimator estimator, double x) {
  switch (estimator) {
    case KlEstimator::kK1:
      return {-x, 1};
    case KlEstimator::kK2:
      return {x * x / 2, -x};
    case KlEstimator::kK3:
      return {std::expm1(x) - x, -std::expm1(x)};
  }
  return {};
}

void PolicySums::add(const PolicySums& other) {
  loss += other.loss;
  kl_loss += other.kl_loss;
  answers += other.answers;
  tokens += other.tokens;
  kl += other.kl;
  ratio += other.ratio;
  log_prob_gap += other.log_prob_gap;
  correction += other.correction;
  clipped_low += other.clipped_low;
  clipped_high += other.clipped_high;
  dual_clipped += other.dual_clipped;
  corrected += other.corrected;
  lowest_ratio = std::min(lowest_ratio, other.lowest_ratio);
  highest_ratio = std::max(highest_ratio, other.highest_ratio);
  largest_gap = std::max(largest_gap, other.largest_gap);
}

void policy_loss(const Policy& policy, const PolicyAnswer& answer, const PolicyUpdate& update,
                 std::span<double> gradients, PolicySums& sums) {
  check(policy);
  check(policy, answer, update, gradients.size());
  ++sums.answers;
  sums.tokens += static_cast<int64_t>(answer.now.size());
  if (answer.now.empty()) return;
  const double share = weight_of_token(policy, update, answer.now.size());
  add_advantages(policy, answer, share, gradients, sums);
  add_divergence(policy, answer, share, gradients, sums);
}

}  // namespace temper::losses
