#include "recipes/grpo/rollout_sums.h"

#include <gtest/gtest.h>

#include <limits>

#include "collectives/launch.h"

namespace temper::recipes {
namespace {

SampledAnswer answer_worth(double reward, const char* finish, int64_t tokens) {
  SampledAnswer answer;
  answer.reward = reward;
  answer.finish = finish;
  answer.parts = {reward, 2 * reward};
  const auto count = static_cast<size_t>(tokens);
  answer.passages.push_back(
      {.prompt = {1}, .ids = std::vector<int32_t>(count), .sampled = std::vector<uint8_t>(count, 1)});
  return answer;
}

std::vector<SampledAnswer> four_answers() {
  std::vector<SampledAnswer> answers{answer_worth(1, "stop", 2), answer_worth(0.5, "length", 4),
                                     answer_worth(std::numeric_limits<double>::quiet_NaN(), "stop", 6),
                                     answer_worth(0, "stop", 1)};
  answers[2].error = "a reward failed";
  return answers;
}

TEST(AnswerSums, AnAnswerThatCouldNotBeJudgedHasNoReward) {
  AnswerSums sums;
  sums.add(four_answers());
  EXPECT_EQ(sums.answers, 4);
  EXPECT_EQ(sums.judged, 3);
  EXPECT_EQ(sums.failed, 1);
  EXPECT_EQ(sums.truncated, 1);
  EXPECT_EQ(sums.tokens, 13);
  EXPECT_EQ(sums.mean_reward(), 0.5);
  EXPECT_DOUBLE_EQ(sums.reward_deviation(), 0.5);
  EXPECT_EQ(sums.parts, (std::vector<double>{1.5, 3}));
}

// However answers are shared among ranks; seconds are those of the slowest one.
TEST(RolloutReport, IsThatOfAllRanks) {
  AnswerSums all;
  all.add(four_answers());
  collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& ranks) {
    const std::vector<SampledAnswer> answers = four_answers();
    RolloutReport report;
    for (size_t i = 0; i < answers.size(); ++i)
      if (static_cast<int>(i) % 2 == ranks.rank()) report.answers.add({answers[i]});
    report.work.add({.tokens = 10,
                     .computed = 20,
                     .found = 3,
                     .generating = 1.0 + ranks.rank(),
                     .judging = 2.0 - ranks.rank()});
    report.add(TurnCosts{.memory = 1, .syncing = 3.0 + ranks.rank()});
    report.sum_over(ranks);
    EXPECT_EQ(report.work.syncing, 4);
    EXPECT_EQ(report.answers.answers, all.answers);
    EXPECT_EQ(report.answers.judged, all.judged);
    EXPECT_EQ(report.answers.truncated, all.truncated);
    EXPECT_EQ(report.answers.tokens, all.tokens);
    EXPECT_EQ(report.answers.squared_reward, all.squared_reward);
    EXPECT_EQ(report.answers.parts, all.parts);
    EXPECT_EQ(report.work.sampled, 20);
    EXPECT_EQ(report.work.found, 6);
    EXPECT_EQ(report.work.generating, 2);
    EXPECT_EQ(report.work.judging, 2);
  });
}

}  // namespace
}  // namespace temper::recipes
