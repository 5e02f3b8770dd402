#include "device/memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace temper {
namespace {

RegionUsage usage_of(MemoryTag tag) { return pool().usage()[static_cast<size_t>(tag)]; }

TEST(Memory, CountsByTagAndReusesFreedBlocks) {
  const int64_t before = usage_of(MemoryTag::kWorkspace).live;
  void* a = pool().allocate(1000, MemoryTag::kWorkspace);
  void* b = pool().allocate(5000, MemoryTag::kWorkspace);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(usage_of(MemoryTag::kWorkspace).live - before, 1024 + 5056);
  pool().release(a, MemoryTag::kWorkspace);
  EXPECT_EQ(pool().allocate(900, MemoryTag::kWorkspace), a);
  pool().release(a, MemoryTag::kWorkspace);
  pool().release(b, MemoryTag::kWorkspace);
  EXPECT_EQ(usage_of(MemoryTag::kWorkspace).live, before);
  EXPECT_EQ(pool().allocate(6000, MemoryTag::kWorkspace), a) << "neighbouring free blocks must merge";
  pool().release(a, MemoryTag::kWorkspace);
}

// Memory that was kept for reuse goes back to the system when the limit asks for it, and is not counted any
// more; blocks that lie there later count again.
TEST(Memory, TrimmedMemoryIsNoLongerHeld) {
  constexpr int64_t kMiB = 1 << 20, kLarge = 64 * kMiB;
  Pool& memory = pool();
  const int64_t limit = memory.limit();
  const auto held = [] {
    int64_t sum = 0;
    for (const RegionUsage& each : pool().usage()) sum += each.held;
    return sum;
  };
  void* first = memory.allocate(kLarge, MemoryTag::kWorkspace);
  void* last = memory.allocate(kMiB, MemoryTag::kWorkspace);  // keeps the region's end where it is
  std::memset(first, 1, kLarge);
  memory.release(first, MemoryTag::kWorkspace);
  const int64_t before = held(), resident = current_resident_bytes();
  EXPECT_GE(before, kLarge);
  memory.set_limit(before);
  void* other = memory.allocate(kMiB, MemoryTag::kKvCache);  // above the limit together with what is kept
  EXPECT_LE(held(), before + kMiB - kLarge + kMiB);
  EXPECT_LT(current_resident_bytes(), resident - kLarge / 2);
  EXPECT_LE(held(), memory.limit());
  memory.set_limit(limit);
  const int64_t trimmed = held();
  void* again = memory.allocate(kLarge / 2, MemoryTag::kWorkspace);
  EXPECT_EQ(again, first);
  EXPECT_NEAR(static_cast<double>(held()), static_cast<double>(trimmed + kLarge / 2), 8192);  // whole pages
  const int64_t reused = held();
  memory.release(again, MemoryTag::kWorkspace);
  EXPECT_EQ(held(), reused);  // kept for reuse
  memory.release(last, MemoryTag::kWorkspace);
  memory.release(other, MemoryTag::kKvCache);
}

TEST(Memory, PauseKeepsAddressesAndContents) {
  auto* bytes = static_cast<unsigned char*>(pool().allocate(10000, MemoryTag::kKvCache));
  std::memset(bytes, 7, 10000);
  pool().pause(MemoryTag::kKvCache, PauseMode::kKeep);
  EXPECT_TRUE(usage_of(MemoryTag::kKvCache).paused);
  EXPECT_THROW(pool().allocate(1, MemoryTag::kKvCache), Error);
  EXPECT_THROW(pool().pause(MemoryTag::kKvCache, PauseMode::kKeep), Error);
  pool().resume(MemoryTag::kKvCache);
  EXPECT_THROW(pool().resume(MemoryTag::kKvCache), Error);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(bytes[i], 7);
  pool().pause(MemoryTag::kKvCache, PauseMode::kDrop);
  pool().resume(MemoryTag::kKvCache);
  EXPECT_EQ(bytes[0], 0);
  pool().release(bytes, MemoryTag::kKvCache);
}

TEST(Memory, TheLimitIsAnErrorWithTheTable) {
  const int64_t limit = pool().limit();
  pool().set_limit(1 << 20);
  try {
    pool().allocate(2 << 20, MemoryTag::kActivations);
    ADD_FAILURE() << "an allocation above the limit succeeded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources);
    EXPECT_NE(std::string(error.what()).find("'activations' asks for 2.00 MiB"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("total"), std::string::npos);
  }
  pool().set_limit(limit);
}

TEST(Memory, UnknownDeviceIsRefused) { EXPECT_THROW(pool({DeviceType::kNpu, 0}), Error); }

}  // namespace
}  // namespace temper
