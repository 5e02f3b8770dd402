#include "parallel/step_deadline.h"

#include <gtest/gtest.h>

#include "collectives/local/local.h"

namespace temper::parallel {
namespace {

TEST(StepDeadline, IsFiveMediansOfUpdatesAndAtLeastHalfAMinute) {
  StepDeadline deadline(collectives::alone());
  EXPECT_EQ(deadline.of_step(), 600) << "nothing is known of updates";
  deadline.end_step(100);  // kernels are timed, graphs captured
  deadline.end_step(1);
  EXPECT_EQ(deadline.of_step(), 600);
  deadline.end_step(1);
  EXPECT_EQ(deadline.of_step(), 30);
  for (int i = 0; i < 10; ++i) deadline.end_step(20);
  EXPECT_EQ(deadline.of_step(), 100);
  for (int i = 0; i < 100; ++i) deadline.end_step(200);
  EXPECT_EQ(deadline.of_step(), 1000) << "updates longer than the deadline of all else";
}

}  // namespace
}  // namespace temper::parallel
