#include "losses/policy_presets.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/errors.h"

namespace temper::losses {
namespace {

TEST(PolicyPresets, AreWhatTheirPapersSay) {
  const PolicyPreset& grpo = policy_preset("grpo");
  EXPECT_EQ(grpo.policy.mean, PolicyMean::kAnswers);
  EXPECT_EQ(grpo.policy.beta, 0.04);
  EXPECT_EQ(grpo.policy.kl, KlEstimator::kK3);
  EXPECT_EQ(grpo.advantages.scale, AdvantageScale::kGroup);
  EXPECT_EQ(policy_preset("dr_grpo").policy.mean, PolicyMean::kConstant);
  EXPECT_EQ(policy_preset("dr_grpo").advantages.scale, AdvantageScale::kNone);
  EXPECT_EQ(policy_preset("dr_grpo").policy.beta, 0);
  EXPECT_EQ(policy_preset("dapo").policy.mean, PolicyMean::kTokens);
  EXPECT_EQ(policy_preset("dapo").policy.clip_low, 0.2);
  EXPECT_EQ(policy_preset("dapo").policy.clip_high, 0.28);
  EXPECT_EQ(policy_preset("gspo").policy.level, RatioLevel::kSequence);
  EXPECT_EQ(policy_preset("gspo").policy.clip_low, 3e-4);
  EXPECT_EQ(policy_preset("gspo").policy.clip_high, 4e-4);
  EXPECT_EQ(policy_preset("cispo").policy.kind, PolicyKind::kCispo);
  EXPECT_EQ(policy_preset("rloo").advantages.baseline, Baseline::kLeaveOneOut);
  EXPECT_EQ(policy_preset("rloo").advantages.scale, AdvantageScale::kNone);
  EXPECT_EQ(policy_preset("reinforce_pp").source, AdvantageSource::kReinforcePp);
  EXPECT_EQ(policy_preset("reinforce_pp_baseline").advantages.scale, AdvantageScale::kBatchDifferences);
  EXPECT_EQ(policy_preset("reinforce_pp_baseline").policy.kl, KlEstimator::kK2);
  EXPECT_EQ(policy_preset("ppo").source, AdvantageSource::kGae);
}

// With the policy that sampled, all of them are REINFORCE: the gradient is -A times the tokens' share.
TEST(PolicyPresets, AreReinforceWhereThePolicyIsThatWhichSampled) {
  const std::vector<double> now{-1, -2, -0.5}, advantages(3, 1.5);
  for (const char* name :
       {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp", "reinforce_pp_baseline", "rloo", "ppo"}) {
    PolicySums sums;
    std::vector<double> gradients(3);
    policy_loss(policy_preset(name).policy, {now, now, now, {}, advantages},
                {.answers = 1, .tokens = 3, .most_tokens = 3}, gradients, sums);
    for (const double gradient : gradients) EXPECT_NEAR(gradient, -0.5, 1e-15) << name;
    EXPECT_EQ(sums.clipped_low + sums.clipped_high, 0) << name;
  }
}

TEST(PolicyPresets, RlooClipsNothing) {
  const std::vector<double> now{-0.1, -5}, old{-3, -0.1}, advantages{2, -2};
  PolicySums sums;
  std::vector<double> gradients(2);
  policy_loss(policy_preset("rloo").policy, {now, old, {}, {}, advantages},
              {.answers = 1, .tokens = 2, .most_tokens = 2}, gradients, sums);
  EXPECT_EQ(sums.clipped_low + sums.clipped_high, 0);
  EXPECT_NE(gradients[0], 0);
  EXPECT_NE(gradients[1], 0);
}

TEST(PolicyPresets, AnUnknownNameListsThem) {
  const std::string error = error_of([] { policy_preset("grop"); });
  expect_has(error, "[policy] there is no policy loss called 'grop'; there are grpo, dr_grpo, dapo");
  expect_has(error, "rloo, ppo");
}

}  // namespace
}  // namespace temper::losses
