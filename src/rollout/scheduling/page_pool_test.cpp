#include "rollout/scheduling/page_pool.h"

#include <gtest/gtest.h>

namespace temper::rollout {
namespace {

TEST(PagePool, GivesWhatNobodyHasTheOldestFirst) {
  PagePool pool(3);
  const int32_t a = pool.take(), b = pool.take(), c = pool.take();
  EXPECT_EQ(pool.take(), PagePool::kNone);
  pool.publish(a, {0, 1, 0, {1, 2}});
  pool.publish(b, {0, 1, 0, {3, 4}});
  pool.give_back(b);
  pool.give_back(a);
  EXPECT_EQ(pool.available(), 2);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.find({0, 1, 0, {3, 4}}), nullptr);
  ASSERT_NE(pool.find({0, 1, 0, {1, 2}}), nullptr);
  pool.keep(a);  // found: it is in use now
  EXPECT_EQ(pool.take(), PagePool::kNone);
  pool.give_back(c);
  EXPECT_EQ(pool.take(), c);
}

TEST(PagePool, FindsOnlyTheSameTextByTheSameWeights) {
  PagePool pool(4);
  const uint64_t first = pool.publish(pool.take(), {0, 1, 0, {1, 2}});
  EXPECT_TRUE(pool.holds(first));
  pool.publish(pool.take(), {first, 1, 0, {3, 4}});
  EXPECT_NE(pool.find({first, 1, 0, {3, 4}}), nullptr);
  EXPECT_EQ(pool.find({0, 1, 0, {3, 4}}), nullptr);      // behind another text
  EXPECT_EQ(pool.find({first, 2, 0, {3, 4}}), nullptr);  // of other weights
  EXPECT_EQ(pool.find({first, 1, 7, {3, 4}}), nullptr);  // of an adapter
  // The same text again: the page that is there stays the one that is found.
  const int32_t again = pool.take();
  EXPECT_EQ(pool.publish(again, {0, 1, 0, {1, 2}}), first);
  EXPECT_NE(pool.find({0, 1, 0, {1, 2}})->page, again);
}

TEST(PagePool, ForgetsAll) {
  PagePool pool(3), fresh(3);
  const int32_t first = pool.take(), second = pool.take();
  const uint64_t serial = pool.publish(first, {.tokens = {1}});
  pool.publish(second, {.before = serial, .tokens = {2}});
  pool.give_back(first);
  pool.give_back(second);
  pool.forget();
  EXPECT_EQ(pool.find({.tokens = {1}}), nullptr);
  EXPECT_FALSE(pool.holds(serial));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pool.take(), fresh.take());
  EXPECT_GT(pool.publish(0, {.tokens = {1}}), serial);
}

TEST(PagePool, APageThatIsTakenOverIsFoundNoMore) {
  PagePool pool(2);
  const int32_t page = pool.take();
  const uint64_t serial = pool.publish(page, {.tokens = {1}});
  pool.give_back(page);
  pool.take_over(page);
  EXPECT_EQ(pool.find({.tokens = {1}}), nullptr);
  EXPECT_FALSE(pool.holds(serial));
  EXPECT_EQ(pool.available(), 1);
  pool.publish(page, {.tokens = {1, 2}});
  EXPECT_EQ(pool.find({.tokens = {1, 2}})->page, page);
}

TEST(PagePool, GrowsWithWhatItHolds) {
  PagePool pool(2);
  pool.publish(pool.take(), {.tokens = {1}});
  pool.give_back(0);
  pool.grow(4);
  EXPECT_EQ(pool.size(), 4);
  EXPECT_EQ(pool.find({.tokens = {1}})->page, 0);
  for (const int32_t page : {1, 2, 3, 0, PagePool::kNone}) EXPECT_EQ(pool.take(), page);
}

TEST(PagePool, IsSharedUntilTheLastUserLeaves) {
  PagePool pool(1);
  const int32_t page = pool.take();
  pool.keep(page);
  pool.give_back(page);
  EXPECT_EQ(pool.available(), 0);
  pool.give_back(page);
  EXPECT_EQ(pool.available(), 1);
}

}  // namespace
}  // namespace temper::rollout
