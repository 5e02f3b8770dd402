#include "rewards/reward_sum.h"

#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

TEST(RewardSum, AddsWeightedParts) {
  RewardSum sum({{.type = "exact_match", .weight = 2},
                 {.type = "length", .weight = 0.5, .length = {.max_length = 10, .buffer = 10}},
                 {.type = "exact_match", .name = "other", .weight = -1, .text = {.answer = "b"}}},
                "grpo.rewards");
  EXPECT_EQ(sum.names(), (std::vector<std::string>{"exact_match", "length", "other"}));
  EXPECT_TRUE(sum.take(kForEver).empty());
  const Json row = Json::parse(R"({"answer": "x", "b": "y"})", "row");
  sum.submit(1, {.place = "", .row = &row, .text = "x", .tokens = 5});
  sum.submit(2, {.place = "", .row = &row, .text = "y", .tokens = 10});
  const auto judged = sum.take(kForEver);
  ASSERT_EQ(judged.size(), 2u);
  EXPECT_EQ(judged[0].first, 1);
  EXPECT_EQ(judged[0].second.verdict.reward, 1.75);
  EXPECT_EQ(judged[0].second.parts, (std::vector<double>{1, -0.5, 0}));
  EXPECT_EQ(judged[1].second.verdict.reward, -1.5);
  EXPECT_EQ(judged[1].second.parts, (std::vector<double>{0, -1, 1}));
}

TEST(RewardSum, AnErrorOfOnePartIsTheSums) {
  RewardSum sum({{.type = "exact_match"}, {.type = "exact_match", .name = "other", .text = {.answer = "b"}}},
                "grpo.rewards");
  const Json row = Json::parse(R"({"answer": "x"})", "row");
  sum.submit(1, {.place = "", .row = &row, .text = "x"});
  const auto judged = sum.take(kForEver);
  ASSERT_EQ(judged.size(), 1u);
  EXPECT_EQ(judged[0].second.verdict.error, "reward other: the row has no field 'b'; it has answer");
  EXPECT_TRUE(judged[0].second.parts.empty());
}

// Finite numbers among them, whose squares would be infinite.
TEST(RewardSum, WhatIsTooLargeToLearnFromIsAnError) {
  const auto error_of_weights = [](double first, double second) {
    RewardSum sum({{.type = "exact_match", .weight = first},
                   {.type = "exact_match", .name = "other", .weight = second}},
                  "grpo.rewards");
    const Json row = Json::parse(R"({"answer": "x"})", "row");
    sum.submit(1, {.place = "", .row = &row, .text = "x"});
    return sum.take(kForEver).at(0).second.verdict.error;
  };
  EXPECT_EQ(error_of_weights(1e30, 0), "");
  EXPECT_EQ(error_of_weights(-1e30, 0), "");
  EXPECT_EQ(
      error_of_weights(1e30, 1e29),
      "the sum of the rewards: 1.1e+30 is too large to learn from; expected at most 1e+30 in magnitude");
  EXPECT_EQ(
      error_of_weights(-1e308, 0),
      "the sum of the rewards: -1e+308 is too large to learn from; expected at most 1e+30 in magnitude");
  EXPECT_EQ(error_of_weights(1.7e308, 1.7e308),
            "the sum of the rewards: inf is too large to learn from; expected at most 1e+30 in magnitude");
}

}  // namespace
}  // namespace temper::rewards
