#include "recipes/parts/update_time.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

// A machine whose updates take `each` seconds and `row` seconds for each row of 100 tokens. The first update
// is slower.
class Machine {
 public:
  Machine(double each, double row) : each_(each), row_(row) {}

  double time(int64_t rows, int64_t fewest = 1) {
    return time_update({rows, fewest, [](int64_t n) { return 100.0 * static_cast<double>(n); },
                        [&](int64_t n) {
                          measured.push_back(n);
                          return each_ + row_ * static_cast<double>(n) + (measured.size() == 1 ? 2 : 0);
                        }});
  }
  std::vector<int64_t> measured;

 private:
  double each_, row_;
};

TEST(UpdateTime, AQuickUpdateIsMeasured) {
  Machine machine(0.1, 0.01);
  EXPECT_DOUBLE_EQ(machine.time(8), 0.18);
  EXPECT_EQ(machine.measured, (std::vector<int64_t>{1, 1, 8, 8}));
  Machine one(0.5, 0.5);
  EXPECT_DOUBLE_EQ(one.time(1), 1);
  EXPECT_EQ(one.measured, (std::vector<int64_t>{1, 1}));
}

// The optimizer's part was scaled by the rows: 64 times 1.5 s.
TEST(UpdateTime, WhatEachUpdateTakesIsNotScaled) {
  Machine quick(1.5, 0.001);
  EXPECT_DOUBLE_EQ(quick.time(64), 1.564);
  Machine slow(5, 0.25);
  EXPECT_NEAR(slow.time(64), 21, 1e-9);
  EXPECT_EQ(slow.measured, (std::vector<int64_t>{1, 1, 2, 2}));
  Machine rows(0, 0.1);
  EXPECT_NEAR(rows.time(640), 64, 1e-9);
  EXPECT_EQ(rows.measured, (std::vector<int64_t>{1, 1, 30, 30}));
}

TEST(UpdateTime, BeginsWithAsManyRowsAsAnUpdateNeeds) {
  Machine machine(5, 1);
  EXPECT_NEAR(machine.time(100, 4), 105, 1e-9);
  EXPECT_EQ(machine.measured, (std::vector<int64_t>{4, 4, 8, 8}));
}

TEST(UpdateTime, WhatIsLongIsMeasuredOnce) {
  Machine machine(0, 40);
  EXPECT_NEAR(machine.time(10), 420, 1e-9);
  EXPECT_EQ(machine.measured, (std::vector<int64_t>{1}));
}

TEST(UpdateTime, AClockThatIsNotExactDoesNotMatter) {
  EXPECT_DOUBLE_EQ(estimate_update({{100, 4}, {200, 3.9}}, 1000), 3.9);
  EXPECT_DOUBLE_EQ(estimate_update({{100, 1}, {200, 4}}, 1000), 20);
  EXPECT_DOUBLE_EQ(estimate_update({{100, 1}, {100, 4}}, 1000), 40);
}

}  // namespace
}  // namespace temper::recipes
