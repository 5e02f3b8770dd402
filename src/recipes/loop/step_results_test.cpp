#include "recipes/loop/step_results.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "recipes/loop/adapters_run_test_support.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

struct Results : AdaptersRun {
  explicit Results(const std::vector<std::string>& names) : AdaptersRun(names) {}
  CheckpointManager checkpoints{setup, learners};
  ProgressReporter progress{setup};
  StepProfile profile{0, setup.facts, DType::kF32, "", setup.ranks};
  StepResults results{setup, learners, checkpoints, progress, profile};

  std::string drop_first(ErrorKind kind, StepResults::Cause cause) {
    return error_of([&] { results.drop(learners.front(), Error("the loss is NaN", kind), cause); }, kind);
  }
};

using Cause = StepResults::Cause;

TEST(StepResults, OfSeveralAdaptersOneIsDropped) {
  for (const Cause cause : {Cause::kData, Cause::kStep}) {
    Results run({"a", "b"});
    EXPECT_EQ(run.drop_first(ErrorKind::kInput, cause), "");
    EXPECT_EQ(run.learners.front().stop_reason(), "the loss is NaN");
    EXPECT_FALSE(run.learners.all_done());
  }
}

TEST(StepResults, OneAloneAndAnErrorOfTheMachineEndTheRun) {
  Results alone({"a"}), several({"a", "b"});
  EXPECT_EQ(alone.drop_first(ErrorKind::kInput, Cause::kStep), "the loss is NaN");
  EXPECT_EQ(alone.learners.front().stop_reason(), "") << "the last checkpoint is what the run resumes from";
  EXPECT_EQ(several.drop_first(ErrorKind::kResources, Cause::kStep), "the loss is NaN");
  EXPECT_EQ(several.learners.front().stop_reason(), "");
}

TEST(StepResults, WithoutStepsThereIsNothingToCollect) {
  Results run({});
  EXPECT_NO_THROW(run.results.collect_and_raise());
  EXPECT_FALSE(run.results.has_errors());
}

}  // namespace
}  // namespace temper::recipes
