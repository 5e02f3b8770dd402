#include "losses/returns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/errors.h"

namespace temper::losses {
namespace {

using Values = std::vector<double>;
const double kNoReward = std::numeric_limits<double>::quiet_NaN();

TEST(Returns, RewardsToGoHoldTheKlOfWhatFollows) {
  const Values old{-1, -2, -0.5}, reference{-1.5, -1, -0.25};
  Values rewards = token_rewards(4, {0.1}, old, reference);
  const Values expected{-0.05, 0.1, 4.025};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(rewards[i], expected[i], 1e-15);
  rewards_to_go(1, rewards);
  EXPECT_NEAR(rewards[0], 4.075, 1e-14);
  EXPECT_NEAR(rewards[0], reward_less_kl(4, 0.1, old, reference), 1e-14);
  EXPECT_NEAR(rewards[1], 4.125, 1e-14);
  rewards_to_go(0.5, rewards);
  EXPECT_NEAR(rewards[1], 4.125 + 4.025 / 2, 1e-14);
  EXPECT_NEAR(rewards[0], 4.075 + (4.125 + 4.025 / 2) / 2, 1e-14);
}

TEST(Returns, ReinforcePpNormalisesOverTheTokensOfTheBatch) {
  const Values a{-1, -2, -0.5}, b{-3}, zeros(3, 0.0);
  const auto last = std::span(zeros).first(1);
  const RewardedAnswer batch[] = {{2, a, zeros}, {kNoReward, a, {}}, {-1, b, last}};
  const Values found = reinforce_pp({.beta = 0.5, .eps = 0}, batch);
  // -β (log p_old - 0): 0.5, 1, 0.25 + 2; 1.5 - 1; and rewards to go 3.75, 3.25, 2.25; 0.5.
  const Values raw{3.75, 3.25, 2.25, 0.5};
  const double mean = 9.75 / 4;
  double squares = 0;
  for (const double value : raw) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / 3);
  const Values expected{
      (3.75 - mean) / deviation, (3.25 - mean) / deviation, (2.25 - mean) / deviation, 0, 0, 0,
      (0.5 - mean) / deviation};
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-14) << i;
  // Equal rewards without a KL: nothing to learn, whatever the rounding of their mean.
  const RewardedAnswer equal[] = {{0.1, a, {}}, {0.1, b, {}}, {0.1, a, {}}};
  EXPECT_EQ(reinforce_pp({.eps = 0}, equal), Values(7, 0.0));
}

// Against the definition: the sum of (γ λ)^l times the surprises that follow.
TEST(Returns, GaeIsTheSumOfDiscountedSurprises) {
  const Values rewards{0, -0.1, 0.3, 2}, values{0.5, 0.25, -1, 0.75};
  for (const double gamma : {1.0, 0.9})
    for (const double lambda : {0.0, 0.5, 1.0})
      for (const double after : {0.0, 1.5}) {
        Values found(4), returns(4);
        gae({gamma, lambda}, rewards, values, after, found, returns);
        for (size_t i = 0; i < 4; ++i) {
          double expected = 0;
          for (size_t k = i; k < 4; ++k) {
            const double next = k + 1 < 4 ? values[k + 1] : after;
            expected += std::pow(gamma * lambda, static_cast<double>(k - i)) *
                        (rewards[k] + gamma * next - values[k]);
          }
          EXPECT_NEAR(found[i], expected, 1e-14);
          EXPECT_NEAR(returns[i], expected + values[i], 1e-14);
        }
      }
}

TEST(Returns, ValuesLearnTheWorseOfClippedAndFree) {
  for (const double target : {-1.0, 0.1, 2.0})
    for (const double value : {-0.9, -0.21, 0.05, 0.15, 0.33, 1.7})
      for (const double clip : {0.0, 0.2}) {
        const auto loss = [&](double v) {
          const double free = (v - target) * (v - target);
          if (clip == 0) return free / 2;
          const double held = std::min(std::max(v, -clip), clip) - target;
          return std::max(free, held * held) / 2;
        };
        const ValueLoss found = value_loss(value, 0, target, clip);
        EXPECT_NEAR(found.loss, loss(value), 1e-15);
        EXPECT_NEAR(found.gradient, (loss(value + 1e-6) - loss(value - 1e-6)) / 2e-6, 1e-8);
      }
  EXPECT_TRUE(value_loss(0.3, 0, 1, 0.2).clipped);
  EXPECT_FALSE(value_loss(0.2, 0, 1, 0.2).clipped);  // on the edge
  EXPECT_EQ(value_loss(0.2, 0, 1, 0.2).gradient, 0.2 - 1);
}

TEST(Returns, RefusesAnswersThatDoNotFit) {
  const Values two(2), three(3);
  expect_has(error_of([&] { token_rewards(1, {}, {}, {}); }), "[returns] an answer has no tokens");
  expect_has(error_of([&] { token_rewards(1, {0.1}, two, three); }),
             "[returns] an answer of 2 tokens has 3 values of `reference`");
  Values out(2);
  expect_has(error_of([&] { gae({}, two, three, 0, out, out); }), "3 values of `values`");
}

}  // namespace
}  // namespace temper::losses
