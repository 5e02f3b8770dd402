#include "rollout/scheduling/state_slots.h"

#include <gtest/gtest.h>

namespace temper::rollout {
namespace {

TEST(StateSlots, AreTakenInOrder) {
  StateSlots slots(3);
  EXPECT_EQ(slots.size(), 6);
  EXPECT_EQ(slots.take(), 0);
  EXPECT_EQ(slots.take(), 1);
  slots.give_back(0);
  EXPECT_EQ(slots.take(), 0);
  EXPECT_EQ(slots.take(), 2);
}

TEST(StateSlots, KeepTheNewestCopies) {
  StateSlots slots(2);
  EXPECT_EQ(slots.keep(11), 2);
  EXPECT_EQ(slots.keep(11), std::nullopt);  // there is one
  EXPECT_EQ(slots.keep(12), 3);
  EXPECT_EQ(slots.find(11), 2);
  EXPECT_EQ(slots.keep(13), 2);  // in place of the oldest
  EXPECT_EQ(slots.find(11), std::nullopt);
  EXPECT_EQ(slots.find(12), 3);
  EXPECT_EQ(slots.find(13), 2);
  slots.drop_unless([](uint64_t serial) { return serial == 13; });
  EXPECT_EQ(slots.find(12), std::nullopt);
  EXPECT_EQ(slots.keep(14), 3);
}

TEST(StateSlots, ForgetAll) {
  StateSlots slots(2);
  slots.take();
  slots.keep(11);
  slots.forget();
  EXPECT_EQ(slots.find(11), std::nullopt);
  EXPECT_EQ(slots.take(), 0);
  EXPECT_EQ(slots.take(), 1);
}

}  // namespace
}  // namespace temper::rollout
