#include "recipes/learner/update_schedule.h"

#include <gtest/gtest.h>

#include "recipes/learner/tiny_run_test_support.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

TEST(UpdateSchedule, EpochsAreCountedInUpdates) {
  const TinyInputs run([](RunConfig& config) {
    config.train.steps = 0;
    config.train.epochs = 6;
    config.data.max_length = 4;
    config.data.packing = data::Packing::kNone;
  });
  EXPECT_EQ(UpdateSchedule(*run.inputs).total_steps(), 12) << "two rows, one of them in each update";
}

TEST(UpdateSchedule, HeldUpdatesAreNoPartOfTheSchedule) {
  const TinyInputs run([](RunConfig& config) {
    config.train.optimizer.lr = 1;
    config.train.schedule.type = training::ScheduleType::kLinear;
    config.train.schedule.warmup_steps = 0;
  });
  UpdateSchedule schedule(*run.inputs);
  EXPECT_FALSE(schedule.is_held(0));
  EXPECT_EQ(schedule.lr(1), 0.75);
  schedule.hold(2);
  EXPECT_TRUE(schedule.is_held(1));
  EXPECT_FALSE(schedule.is_held(2));
  EXPECT_EQ(schedule.lr(2), 1);
  EXPECT_EQ(schedule.lr(3), 0.5);
  EXPECT_EQ(schedule.made_of(3), 1);
}

TEST(UpdateSchedule, RefusesAnUpdateThatReadsTheDataManyTimes) {
  const TinyInputs run([](RunConfig& config) { config.train.rows_per_step = 1000; });
  expect_has(error_of([&] { UpdateSchedule schedule(*run.inputs); }),
             "[train.rows_per_step] is 1000, but an epoch has about");
}

TEST(UpdateSchedule, WarnsWhereTheRateJumps) {
  const TinyInputs run;
  const UpdateSchedule schedule(*run.inputs);
  const auto warning = [&](double planned) {
    testing::internal::CaptureStderr();
    schedule.warn_of_jump(1, Json::Object{{"next_lr", planned}});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(schedule.lr(1)), "");
  expect_has(warning(2 * schedule.lr(1)), "the learning rate jumps: update 2 would have had");
}

}  // namespace
}  // namespace temper::recipes
