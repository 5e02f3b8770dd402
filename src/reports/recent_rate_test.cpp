#include "reports/recent_rate.h"

#include <gtest/gtest.h>

namespace temper::reports {
namespace {

TEST(RecentRate, IsAMeanOverTheWindow) {
  RecentRate rate(10);
  EXPECT_EQ(rate.per_second(), 0);
  rate.add(100, 4);
  EXPECT_EQ(rate.per_second(), 25);
  rate.add(700, 4);
  EXPECT_EQ(rate.per_second(), 100);
  rate.add(100, 2);  // ten seconds
  EXPECT_EQ(rate.per_second(), 90);
  rate.add(100, 4);  // the last three steps take ten seconds: the first is forgotten
  EXPECT_EQ(rate.per_second(), 90);
  rate.add(60, 20);  // longer than the window
  EXPECT_EQ(rate.per_second(), 3);
}

// Thousands of short steps: sums do not drift.
TEST(RecentRate, ForgetsExactly) {
  RecentRate rate(1);
  for (int i = 0; i < 5000; ++i) rate.add(1e9, 0.1);
  for (int i = 0; i < 10; ++i) rate.add(1, 0.125);
  EXPECT_EQ(rate.per_second(), 8);
}

}  // namespace
}  // namespace temper::reports
