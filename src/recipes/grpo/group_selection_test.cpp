#include "recipes/grpo/group_selection.h"

#include <gtest/gtest.h>

#include <limits>

namespace temper::recipes {
namespace {

using Groups = std::vector<int64_t>;
const double kNone = std::numeric_limits<double>::quiet_NaN();

// The rewards of groups 0 to 4, of two answers each: groups 1 and 4 have no spread.
const std::vector<double> kFive = {0, 1, 1, 1, 1, 0, 2, 3, kNone, 5};

TEST(GroupSelection, TakesTheFirstGroupsAsTheyCome) {
  GroupSelection selection(3, 2, false);
  EXPECT_EQ(selection.next_count(), 3);
  selection.add(0, kFive);
  EXPECT_EQ(selection.groups(), (Groups{0, 1, 2}));
  EXPECT_TRUE(selection.is_full());
  EXPECT_EQ(selection.num_asked(), 5);
  EXPECT_EQ(selection.num_without_spread(), 2);
  EXPECT_EQ(selection.place_of(2), 2);
  EXPECT_EQ(selection.place_of(3), -1);
}

TEST(GroupSelection, DynamicSamplingLeavesOutGroupsWithoutSpread) {
  GroupSelection selection(4, 2, true);
  selection.add(0, kFive);
  EXPECT_EQ(selection.groups(), (Groups{0, 2, 3}));
  EXPECT_FALSE(selection.is_full());
  EXPECT_EQ(selection.next_count(), 2);  // one is missing: half a rollout is asked
  selection.add(5, std::vector<double>{4, 4, 4, 5});
  EXPECT_EQ(selection.groups(), (Groups{0, 2, 3, 6}));
  EXPECT_EQ(selection.place_of(6), 3);
  EXPECT_EQ(selection.num_asked(), 7);
  EXPECT_EQ(selection.num_without_spread(), 3);
}

}  // namespace
}  // namespace temper::recipes
