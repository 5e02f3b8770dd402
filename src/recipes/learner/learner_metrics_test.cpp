#include "recipes/learner/learner_metrics.h"

#include <gtest/gtest.h>

#include <sstream>

#include "recipes/learner/tiny_run_test_support.h"
#include "tests/support/errors.h"
#include "tests/support/packed_rows.h"

namespace temper::recipes {
namespace {

std::vector<Json> lines_of(const LearnerInputs& inputs) {
  std::vector<Json> lines;
  std::istringstream file(read_file(inputs.files.metrics()));
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line, "metrics.jsonl"));
  return lines;
}

UpdateReport report_after(int64_t step, double loss) {
  UpdateReport report{.step = step, .total_steps = 4, .values = {{"reward", 0.5}}, .seconds = 2};
  report.result.loss = loss;
  report.result.tokens = 10;
  report.result.flops = 6;
  return report;
}

TEST(LearnerMetrics, WritesALineForEachUpdate) {
  const TinyInputs run;
  make_directories(run.inputs->files.folder);
  LearnerMetrics metrics(*run.inputs);
  metrics.open({}, false);
  LearnerProgress progress;
  UpdateReport report = report_after(1, 3);
  progress.add(report);
  metrics.write(report, 12);
  metrics.note(1, {{"eval_loss", 7.0}}, {});
  metrics.sync();
  const std::vector<Json> lines = lines_of(*run.inputs);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("step").as_int(), 1);
  EXPECT_EQ(lines[0].at("loss").as_double(), 3);
  EXPECT_EQ(lines[0].at("tokens").as_int(), 10);
  EXPECT_EQ(lines[0].at("tokens_per_second").as_double(), 5);
  EXPECT_EQ(lines[0].at("mfu").as_double(), 0.25);
  EXPECT_EQ(lines[0].at("reward").as_double(), 0.5);
  EXPECT_EQ(lines[0].find("z_loss"), nullptr);
  EXPECT_EQ(lines[1].at("eval_loss").as_double(), 7);
}

TEST(LearnerMetrics, AResumedRunContinuesAfterItsStep) {
  const TinyInputs run;
  make_directories(run.inputs->files.folder);
  {
    LearnerMetrics metrics(*run.inputs);
    metrics.open({}, false);
    for (int64_t step = 1; step <= 3; ++step) metrics.write(report_after(step, 1), 0);
  }
  LearnerMetrics metrics(*run.inputs);
  metrics.open({.step = 2}, true);
  metrics.sync();
  EXPECT_EQ(lines_of(*run.inputs).size(), 2u);
}

TEST(LearnerMetrics, AnEvaluationIsBetterWithALowerLoss) {
  const TinyInputs run;
  const BatchSource::Judged judged =
      evaluation_by_loss({.loss = 2, .target_tokens = 5}, run.inputs->data.train, true);
  EXPECT_EQ(judged.value, -2);
  EXPECT_EQ(judged.text, "eval loss 2.0000 (perplexity 7.389)");
  EXPECT_EQ(Json(judged.values).dump(), "{\"eval_loss\": 2.0, \"eval_target_tokens\": 5}");
}

TEST(LearnerProgress, IsReadAsItWasWritten) {
  LearnerProgress progress{.step = 3, .tokens = 40, .train_seconds = 1.5, .started = "today", .last_loss = 2};
  EXPECT_TRUE(progress.keep_if_best(2));
  progress.step = 4;
  EXPECT_FALSE(progress.keep_if_best(2));
  EXPECT_EQ(progress.best_step, 3);
  const LearnerProgress read = LearnerProgress::of(progress.to_json());
  EXPECT_EQ(Json(read.to_json()), Json(progress.to_json()));
  EXPECT_FALSE(read.pending_evaluation);
  EXPECT_EQ(read.tokens, 40);
}

TEST(PendingUpdate, ReportsOnce) {
  const TinyInputs run;
  PendingUpdate update(*run.inputs);
  EXPECT_FALSE(update.wait());
  update.start_clock();
  const auto rows = {test_row(1, {4})};
  update.begin({rows, 1}, {.step = 3, .lr = 0.5});
  const std::optional<UpdateReport> report = update.wait();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->step, 3);
  EXPECT_EQ(report->result.target_tokens, 2);
  EXPECT_GE(report->seconds, 0);
  EXPECT_LT(report->seconds, 1000) << "since start_clock()";
  EXPECT_FALSE(update.wait());
  update.begin({rows, 1}, {});
  update.drop();
  EXPECT_FALSE(update.wait());
}

}  // namespace
}  // namespace temper::recipes
