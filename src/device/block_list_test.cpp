#include "device/block_list.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>
#include <vector>

namespace {

// Allocations of this thread until one fails; below 0: none does.
thread_local int64_t left = -1;

}  // namespace

void* operator new(size_t bytes) {
  if (left >= 0 && left-- == 0) {
    left = 0;  // and all others, too
    throw std::bad_alloc();
  }
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }

namespace temper::device {
namespace {

constexpr int64_t kCapacity = 1 << 20;

// Blocks are given back while an error unwinds that says there is no memory.
TEST(BlockList, GivesBackWithoutMemory) {
  std::mt19937 random(7);
  BlockList list;
  std::vector<int64_t> taken;
  taken.reserve(1000);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 40; ++i)
      if (const auto block = list.take(static_cast<int64_t>(random() % 5000), kCapacity))
        taken.push_back(block->offset);
    std::shuffle(taken.begin(), taken.end(), random);
    const size_t stay = round % 4 == 3 ? 0 : taken.size() / 2;
    left = 0;
    while (taken.size() > stay) {
      EXPECT_GT(list.give(taken.back()), 0);
      taken.pop_back();
    }
    left = -1;
  }
  EXPECT_TRUE(list.live().empty());
  EXPECT_EQ(list.free().size(), 1u) << "all of it is one block again";
}

// Whichever allocation of take() fails, nothing has changed.
TEST(BlockList, ATakeThatFailsChangesNothing) {
  int failures = 0;
  for (int64_t allowed = 0;; ++allowed) {
    BlockList list;
    const auto a = list.take(1000, kCapacity), b = list.take(64, kCapacity), c = list.take(3000, kCapacity);
    list.give(a->offset);
    const auto live = list.live(), free = list.free();
    left = allowed;
    bool failed = false;
    std::optional<BlockList::Block> taken;
    try {
      taken = list.take(500, kCapacity);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    left = -1;
    if (!failed) {
      EXPECT_EQ(taken->offset, a->offset);
      break;
    }
    ++failures;
    EXPECT_EQ(list.live(), live);
    EXPECT_EQ(list.free(), free);
    EXPECT_EQ(list.take(500, kCapacity)->offset, a->offset);
    list.give(b->offset);
    list.give(c->offset);
  }
  EXPECT_GT(failures, 0);
}

// While the error unwinds the blocks that there are come back, and there is still no memory.
TEST(BlockList, ATakeThatFailsLeavesRoomToGiveAllBack) {
  for (int blocks = 1; blocks < 70; ++blocks)
    for (int64_t allowed = 0, failed = 1; failed == 1; ++allowed) {
      BlockList list;
      std::vector<int64_t> taken;
      for (int i = 0; i < blocks; ++i) taken.push_back(list.take(64, kCapacity)->offset);
      left = allowed;
      try {
        list.take(64, kCapacity);
        failed = 0;
      } catch (const std::bad_alloc&) {
        for (const int64_t offset : taken) list.give(offset);
      }
      left = -1;
      EXPECT_EQ(list.live().size(), failed == 1 ? 0u : taken.size() + 1);
    }
}

}  // namespace
}  // namespace temper::device
