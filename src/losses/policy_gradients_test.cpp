#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "losses/policy.h"

// Every valid combination of options: the loss against its formula, written with exp, min and max alone, and
// the gradients against central differences of that.
namespace temper::losses {
namespace {

using Values = std::vector<double>;

// Ratios within the bounds of clipping and beyond, on both sides, for advantages of both signs.
struct Tokens {
  Values now, old, reference, rollout, advantages;
};

const std::vector<Tokens> kSamples{
    {{-1.0, -0.3, -2.0}, {-1.5, -0.25, -1.6}, {-0.8, -0.5, -2.1}, {-1.45, -1.3, -1.55}, {1.5, -0.5, 1.5}},
    {{-0.4}, {-1.7}, {-0.6}, {-1.4}, {-0.7}},
    {{-2.0, -0.9}, {-1.1, -1.2}, {-1.9, -0.7}, {-1.15, -1.1}, {-1.1, -1.1}},
    {{-0.7, -1.3}, {-0.75, -1.2}, {-0.9, -1.1}, {-0.7, -0.2}, {0, 2}},
};
const PolicyUpdate kUpdate{.answers = 6, .tokens = 11, .most_tokens = 4};  // more than these answers

double kl_of(KlEstimator estimator, double x) {
  if (estimator == KlEstimator::kK1) return -x;
  return estimator == KlEstimator::kK2 ? x * x / 2 : std::exp(x) - x - 1;
}

double mean_of_logs(const Values& now, const Values& old) {
  double sum = 0;
  for (size_t i = 0; i < now.size(); ++i) sum += now[i] - old[i];
  return sum / static_cast<double>(now.size());
}

double weight_of(const Policy& policy, const Tokens& answer, size_t i) {
  const double token = std::exp(answer.old[i] - answer.rollout[i]),
               whole = std::exp(mean_of_logs(answer.old, answer.rollout) *
                                static_cast<double>(answer.old.size()));
  const auto masked = [&](double w) {
    return w >= policy.correction_low && w <= policy.correction_cap ? w : 0;
  };
  switch (policy.correction) {
    case Correction::kNone:
      return 1;
    case Correction::kTokenTruncated:
      return std::min(token, policy.correction_cap);
    case Correction::kTokenMasked:
      return masked(token);
    case Correction::kSequenceTruncated:
      return std::min(whole, policy.correction_cap);
    case Correction::kSequenceMasked:
      return masked(whole);
  }
  return 0;
}

// `stopped` is `now` where no gradient flows.
double formula(const Policy& policy, const Tokens& answer, const Values& now, const Values& stopped) {
  double sum = 0;
  const auto tokens = static_cast<double>(now.size());
  for (size_t i = 0; i < now.size(); ++i) {
    const double a = answer.advantages[i], token_ratio = std::exp(now[i] - answer.old[i]);
    const auto ratio_from = [&](const Values& p) {
      return std::exp(policy.level == RatioLevel::kSequence ? mean_of_logs(p, answer.old)
                                                            : p[i] - answer.old[i]);
    };
    double loss;
    if (policy.kind == PolicyKind::kClip) {
      const double r = ratio_from(now), held = std::clamp(r, 1 - policy.clip_low, 1 + policy.clip_high);
      loss = -std::min(r * a, held * a);
      if (policy.dual_clip > 0 && a < 0) loss = std::min(loss, -policy.dual_clip * a);
    } else {
      loss = -std::min(ratio_from(stopped), policy.ratio_max) * a * now[i];
    }
    const double kl = kl_of(policy.kl, answer.reference[i] - now[i]);
    sum += weight_of(policy, answer, i) * loss + policy.beta * kl * (policy.unbiased_kl ? token_ratio : 1);
  }
  switch (policy.mean) {
    case PolicyMean::kAnswers:
      return sum / tokens / 6;
    case PolicyMean::kTokens:
      return sum / 11;
    case PolicyMean::kConstant:
      return sum / 24;
  }
  return 0;
}

// What is reported of an answer's tokens.
void expect_reports(const Policy& policy, const Tokens& answer, const PolicySums& sums,
                    const std::string& what) {
  double kl = 0, gap = 0, weights = 0, ratios = 0;
  int64_t low = 0, high = 0, dual = 0;
  for (size_t i = 0; i < answer.now.size(); ++i) {
    const double a = answer.advantages[i], weight = weight_of(policy, answer, i);
    const double r = std::exp(policy.level == RatioLevel::kSequence ? mean_of_logs(answer.now, answer.old)
                                                                    : answer.now[i] - answer.old[i]);
    kl += kl_of(policy.kl, answer.reference[i] - answer.now[i]);
    gap += std::abs(answer.old[i] - answer.rollout[i]);
    weights += weight;
    ratios += r;
    if (a == 0 || weight == 0) continue;
    const bool clip = policy.kind == PolicyKind::kClip;
    low += clip && a < 0 && r < 1 - policy.clip_low;
    high += clip ? a > 0 && r > 1 + policy.clip_high : r > policy.ratio_max;
    dual += policy.dual_clip > 0 && a < 0 && r > policy.dual_clip;
  }
  EXPECT_NEAR(sums.kl, kl, 1e-14) << what;
  EXPECT_NEAR(sums.log_prob_gap, gap, 1e-14) << what;
  EXPECT_NEAR(sums.correction, weights, 1e-14) << what;
  EXPECT_NEAR(sums.ratio, ratios, 1e-14) << what;
  EXPECT_EQ(sums.clipped_low, low) << what;
  EXPECT_EQ(sums.clipped_high, high) << what;
  EXPECT_EQ(sums.dual_clipped, dual) << what;
}

void expect_agreement(const Policy& policy, const std::string& what) {
  for (size_t k = 0; k < kSamples.size(); ++k) {
    const Tokens& answer = kSamples[k];
    Values gradients(answer.now.size());
    PolicySums sums;
    policy_loss(policy, {answer.now, answer.old, answer.reference, answer.rollout, answer.advantages},
                kUpdate, gradients, sums);
    EXPECT_NEAR(sums.loss, formula(policy, answer, answer.now, answer.now), 1e-14) << what << " answer " << k;
    expect_reports(policy, answer, sums, what);
    for (size_t i = 0; i < gradients.size(); ++i) {
      Values above = answer.now, below = answer.now;
      above[i] += 1e-6;
      below[i] -= 1e-6;
      const double slope =
          (formula(policy, answer, above, answer.now) - formula(policy, answer, below, answer.now)) / 2e-6;
      EXPECT_NEAR(gradients[i], slope, 1e-8) << what << " answer " << k << " token " << i;
    }
  }
}

std::vector<Policy> with_divergences(const Policy& policy) {
  std::vector<Policy> all{policy};
  for (const KlEstimator kl : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3})
    for (const bool unbiased : {false, true}) {
      all.push_back(policy);
      all.back().beta = 0.3;
      all.back().kl = kl;
      all.back().unbiased_kl = unbiased;
    }
  return all;
}

std::vector<Policy> with_kinds(const Policy& policy) {
  std::vector<Policy> all(4, policy);
  all[1].dual_clip = 2.5;  // of the ratios above, e^1.3 is beyond
  all[2].clip_low = 0.05;
  all[2].clip_high = 0.6;
  all[3].kind = PolicyKind::kCispo;
  all[3].ratio_max = 1.3;
  return all;
}

TEST(Policy, EveryCombinationHasTheGradientOfItsFormula) {
  int64_t count = 0;
  for (const RatioLevel level : {RatioLevel::kToken, RatioLevel::kSequence})
    for (const PolicyMean mean : {PolicyMean::kAnswers, PolicyMean::kTokens, PolicyMean::kConstant})
      for (const Correction correction :
           {Correction::kNone, Correction::kTokenTruncated, Correction::kTokenMasked,
            Correction::kSequenceTruncated, Correction::kSequenceMasked})
        for (const Policy& kind :
             with_kinds({.level = level, .mean = mean, .correction = correction, .correction_cap = 1.5}))
          for (const Policy& policy : with_divergences(kind))
            expect_agreement(policy, "combination " + std::to_string(count++));
  EXPECT_EQ(count, 2 * 3 * 5 * 4 * 7);
}

}  // namespace
}  // namespace temper::losses
