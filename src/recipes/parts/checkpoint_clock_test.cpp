#include "recipes/parts/checkpoint_clock.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

TEST(CheckpointClock, IsDueByTime) {
  CheckpointClock clock({}, 100);
  EXPECT_FALSE(clock.is_due(399));
  EXPECT_TRUE(clock.is_due(400));
  clock.saved(400, 402);
  EXPECT_FALSE(clock.is_due(701));
  EXPECT_TRUE(clock.is_due(702));
}

// A large model on a slow disk: a twentieth of the time goes to checkpoints, unless more are configured.
TEST(CheckpointClock, SlowCheckpointsComeLessOften) {
  CheckpointClock clock({}, 0);
  clock.saved(300, 360);
  EXPECT_FALSE(clock.is_due(360 + 1199));
  EXPECT_TRUE(clock.is_due(360 + 1201));
  CheckpointClock configured({.every_minutes = 5}, 0);
  configured.saved(300, 360);
  EXPECT_TRUE(configured.is_due(660));
}

TEST(CheckpointClock, StepsThatAreGivenReplaceTheDefault) {
  EXPECT_FALSE(CheckpointClock({.every_steps = 0}, 0).is_due(1e9));
  EXPECT_FALSE(CheckpointClock({.every_steps = 10}, 0).is_due(1e9));
  EXPECT_FALSE(CheckpointClock({.every_minutes = 0}, 0).is_due(1e9));
  EXPECT_TRUE(CheckpointClock({.every_steps = 10, .every_minutes = 2}, 0).is_due(121));
}

TEST(CheckpointClock, SaysWhatIsSavedWhen) {
  const auto said = [](const CheckpointConfig& config) {
    return CheckpointClock(config, 0).describe(3 << 20);
  };
  EXPECT_EQ(said({}),
            "every 5 minutes and at the end; the last 2 of 3.00 MiB each are kept (checkpoint.every_steps, "
            "checkpoint.every_minutes)");
  EXPECT_EQ(said({.every_steps = 100, .every_minutes = 2.5, .keep_last = 3}),
            "every 100 steps and every 2.5 minutes and at the end; the last 3 of 3.00 MiB each are kept");
  EXPECT_EQ(
      said({.every_steps = 0}),
      "one at the end (3.00 MiB); a run that is killed before that begins again (checkpoint.every_steps: 0)");
}

TEST(CheckpointClock, LeavesOutWhatTheDiskHasNoRoomFor) {
  const auto left_out = [](const CheckpointConfig& config, int64_t free) {
    CheckpointClock clock(config, 0);
    const bool said = !clock.leave_out(free, 300, 100).empty();
    EXPECT_EQ(clock.is_left_out(), said);
    EXPECT_EQ(clock.is_due(1e9), !said);
    return said;
  };
  EXPECT_TRUE(left_out({}, 299));
  EXPECT_TRUE(left_out({}, 100));
  EXPECT_FALSE(left_out({}, 300));
  EXPECT_FALSE(left_out({}, 99));  // the run is refused
  EXPECT_FALSE(left_out({.every_minutes = 5}, 299));
}

}  // namespace
}  // namespace temper::recipes
