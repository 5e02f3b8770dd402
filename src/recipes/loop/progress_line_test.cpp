#include "recipes/loop/progress_line.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

using Extras = std::vector<std::pair<std::string, double>>;

UpdateReport report_at(int64_t step, int64_t total_steps, double loss) {
  UpdateReport report;
  report.step = step;
  report.total_steps = total_steps;
  report.result.loss = loss;
  return report;
}

TEST(ProgressLine, OfAdaptersCountsTheStepsOfTheLongest) {
  std::vector<UpdateReport> reports{report_at(5, 10, 2), report_at(5, 40, 4)};
  reports[0].result.grad_norm = 3;
  reports[1].result.grad_norm = 1;
  reports[1].epoch = 0.5;
  reports[1].lr = 2e-5;
  reports[1].train_seconds = 10;
  std::optional<double> reward;
  const reports::StepReport line = progress_line(reports, reward);
  EXPECT_EQ(line.step, 5);
  EXPECT_EQ(line.total_steps, 40);
  EXPECT_EQ(line.epoch, 0.5);
  EXPECT_EQ(line.lr, 2e-5);
  EXPECT_EQ(line.seconds_left, 2 * 35);
  EXPECT_EQ(line.loss, 3);
  EXPECT_EQ(line.grad_norm, 3);
  EXPECT_EQ(line.extras, Extras{});
}

TEST(ProgressLine, LaterUpdatesOfARolloutShowItsReward) {
  UpdateReport first = report_at(1, 4, 1), later = report_at(2, 4, 1), other = first;
  first.values = {{"reward", 0.25}};
  other.values = {{"reward", 0.75}};
  std::optional<double> reward;
  EXPECT_EQ(progress_line({later}, reward).extras, Extras{});
  EXPECT_EQ(progress_line({first, other}, reward).extras, (Extras{{"reward", 0.5}}));
  EXPECT_EQ(progress_line({later}, reward).extras, (Extras{{"reward", 0.5}}));
}

// Answers that are not in pairs have no accuracy.
TEST(ProgressLine, AccuracyNeedsPairs) {
  UpdateReport paired = report_at(1, 4, 1), single = paired;
  paired.result.preference = {.chosen_reward = 3, .rejected_reward = 1, .pairs = 4, .correct = 3};
  single.result.preference = {.chosen_reward = 1, .rejected_reward = 1};
  std::optional<double> reward;
  const Extras pairs = progress_line({paired}, reward).extras;
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].first, "margin");
  EXPECT_EQ(pairs[1], (std::pair<std::string, double>("accuracy", 0.75)));
  EXPECT_EQ(progress_line({paired, single}, reward).extras.size(), 1u);
}

// Adapters share the seconds of a step.
TEST(ProgressLine, WorkOfAdaptersIsDoneAtTheSameTime) {
  std::vector<UpdateReport> reports{report_at(1, 4, 1), report_at(1, 4, 1)};
  for (UpdateReport& report : reports) {
    report.result.tokens = 100;
    report.result.flops = 7;
    report.seconds = 2;
  }
  reports[1].seconds = 3;
  const StepWork work = work_of(reports);
  EXPECT_EQ(work.tokens, 200);
  EXPECT_EQ(work.flops, 14);
  EXPECT_EQ(work.seconds, 3);
}

}  // namespace
}  // namespace temper::recipes
