#include "training/schedule.h"

#include <gtest/gtest.h>

#include "training/trainer.h"

namespace temper::training {
namespace {

TEST(Schedule, WarmsUpThenFalls) {
  Schedule schedule{ScheduleType::kCosine, 1.0, 4, 15, 0.1};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(3), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(9), 0.55);  // half-way between peak and a tenth of it
  EXPECT_DOUBLE_EQ(schedule.at(14), 0.1);  // the last update
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.1);
  schedule.type = ScheduleType::kLinear;
  EXPECT_DOUBLE_EQ(schedule.at(9), 0.55);
  EXPECT_NEAR(schedule.at(6), 0.82, 1e-12);
  schedule.type = ScheduleType::kConstant;
  EXPECT_DOUBLE_EQ(schedule.at(13), 1.0);
}

TEST(Schedule, NoUpdateHasARateOfZero) {
  for (const ScheduleType type : {ScheduleType::kCosine, ScheduleType::kLinear}) {
    const Schedule schedule{type, 1.0, 0, 10, 0};
    EXPECT_GT(schedule.at(9), 0.01);
    EXPECT_DOUBLE_EQ(schedule.at(10), 0);
    EXPECT_DOUBLE_EQ((Schedule{type, 1.0, 0, 1, 0.5}.at(0)), 1);  // one update has the peak
  }
}

TEST(MicroBatches, KeepOrderAndBudget) {
  std::vector<data::PackedRow> rows(5);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].ids.resize(i == 2 ? 50 : 10);
  using Groups = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(cut_micro_batches(rows, 0), (Groups{{0, 5}}));
  EXPECT_EQ(cut_micro_batches(rows, 20), (Groups{{0, 2}, {2, 3}, {3, 5}}));
  EXPECT_EQ(cut_micro_batches(rows, 1), (Groups{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}));
  EXPECT_TRUE(cut_micro_batches({}, 10).empty());
}

}  // namespace
}  // namespace temper::training
