#include "reports/profile.h"

#include <gtest/gtest.h>

namespace temper::reports {
namespace {

trace::Event event(const std::string& name, double self, trace::Work work = {}) {
  return {name, 0, self, 0, self, work};
}

TEST(Profile, AddsUpByNameAndKnowsTheLimit) {
  const std::vector<ProfileLine> lines =
      sum_up({event("linear", 0.2, {1e9, 1e6}), event("norm", 0.1, {0, 5e8}),
              event("linear", 0.3, {1e9, 1e6}), event("step", 0.05)});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].name, "linear");
  EXPECT_EQ(lines[0].calls, 2);
  EXPECT_DOUBLE_EQ(lines[0].seconds, 0.5);
  const MachinePeak peak{8e9, 1e10};
  EXPECT_DOUBLE_EQ(lines[0].fraction(peak), 0.5);  // 2e9 at 8e9 a second takes half of the half second
  EXPECT_FALSE(lines[0].bound_by_memory(peak));
  EXPECT_DOUBLE_EQ(lines[1].fraction(peak), 0.5);
  EXPECT_TRUE(lines[1].bound_by_memory(peak));
  EXPECT_LT(lines[2].fraction(peak), 0);
  EXPECT_LT(lines[0].fraction({}), 0);
  const std::string table = describe(lines, 2, peak);
  EXPECT_NE(table.find("linear                        1.0    250.000  76.9 %        4.0      0.0  50 % mul"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("step "), std::string::npos);
}

// What travels between ranks has a speed, and no share of what this machine's memory can do.
TEST(Profile, WhatRanksSendHasNoLimit) {
  const std::vector<ProfileLine> lines = sum_up({event("all_reduce", 0.5, {.sent = 1e9})});
  const MachinePeak peak{8e9, 1e10};
  EXPECT_LT(lines[0].fraction(peak), 0);
  const std::string table = describe(lines, 1, peak);
  EXPECT_NE(table.find("all_reduce                    1.0    500.000 100.0 %          -      2.0         -"),
            std::string::npos)
      << table;
}

}  // namespace
}  // namespace temper::reports
