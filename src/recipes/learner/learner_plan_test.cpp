#include "recipes/learner/learner_plan.h"

#include <gtest/gtest.h>

#include "recipes/learner/tiny_run_test_support.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

TEST(LearnerPlan, ReadsTheRowsOfTheFirstUpdate) {
  const TinyInputs run([](RunConfig& config) { config.data.packing = data::Packing::kNone; });
  const LearnerCheck found = check_learner(*run.inputs, UpdateSchedule(*run.inputs));
  EXPECT_EQ(found.batch.rows.size(), 1u);
  EXPECT_EQ(found.read.rows, 2);
  EXPECT_TRUE(found.read.all);
  EXPECT_EQ(found.step, 0);
  EXPECT_EQ(found.trained, "all weights");
  const Sample sample = sample_rows(*run.inputs);
  EXPECT_EQ(sample.rows.size(), 8u) << "whatever an update has, of as many epochs as it takes";
  EXPECT_EQ(sample.eval_documents, 0);
}

TEST(LearnerPlan, CountsTheModulesOfAnAdapter) {
  const TinyInputs run([](RunConfig& config) { config.adapters = {{.name = "a"}}; });
  expect_has(check_learner(*run.inputs, UpdateSchedule(*run.inputs)).trained,
             " adapted modules, 0 tensors trained in full");
}

TEST(LearnerPlan, CheckpointsBetweenTakeDiskOfTheirOwn) {
  const TinyInputs run([](RunConfig& config) { config.checkpoint.every_steps = 1; });
  const UpdateSchedule schedule(*run.inputs);
  EXPECT_LT(plan_disk(*run.inputs, schedule, false), plan_disk(*run.inputs, schedule, true));
}

TEST(LearnerInputs, QuestionsNeedRows) {
  expect_has(error_of([] { TinyInputs run([](RunConfig& config) { config.eval.exact_match = 3; }); }),
             "[eval.exact_match] is set, but neither data.eval nor data.eval_fraction gives rows");
}

}  // namespace
}  // namespace temper::recipes
