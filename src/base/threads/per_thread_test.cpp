#include "base/threads/per_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace temper {
namespace {

std::atomic<int> alive{0};

struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
  int value = 0;
};

TEST(PerThread, EachThreadHasItsOwnUntilItEnds) {
  static const PerThread<Counted> objects;
  std::thread([] {
    objects.get().value = 1;
    EXPECT_EQ(objects.get().value, 1);
    std::thread([] { EXPECT_EQ(objects.get().value, 0); }).join();
    EXPECT_EQ(alive, 1);
  }).join();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace temper
