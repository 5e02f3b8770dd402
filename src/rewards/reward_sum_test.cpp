#include "rewards/reward_sum.h"

#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

TEST(RewardSum, AddsWeightedParts) {
  RewardSum sum({{.type = "exact_match", .weight = 2},
                 {.type = "length", .weight = 0.5, .max_length = 10, .buffer = 10},
                 {.type = "exact_match", .name = "other", .weight = -1, .answer = "b"}},
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
  RewardSum sum({{.type = "exact_match"}, {.type = "exact_match", .name = "other", .answer = "b"}},
                "grpo.rewards");
  const Json row = Json::parse(R"({"answer": "x"})", "row");
  sum.submit(1, {.place = "", .row = &row, .text = "x"});
  const auto judged = sum.take(kForEver);
  ASSERT_EQ(judged.size(), 1u);
  EXPECT_EQ(judged[0].second.verdict.error, "reward other: the row has no field 'b'; it has answer");
  EXPECT_TRUE(judged[0].second.parts.empty());
}

TEST(RewardSum, ASumThatIsNoNumberIsAnError) {
  RewardSum sum({{.type = "exact_match", .weight = 1.7e308},
                 {.type = "exact_match", .name = "other", .weight = 1.7e308}},
                "grpo.rewards");
  const Json row = Json::parse(R"({"answer": "x"})", "row");
  sum.submit(1, {.place = "", .row = &row, .text = "x"});
  EXPECT_EQ(sum.take(kForEver).at(0).second.verdict.error,
            "the sum of the rewards is too large for a number");
}

}  // namespace
}  // namespace temper::rewards
