#include "device/memory_turn.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"

namespace temper {
namespace {

RegionUsage region(MemoryTag tag) { return pool().usage()[static_cast<size_t>(tag)]; }

// A block of a region, filled with numbers that no other block has.
class Block {
 public:
  Block(int64_t bytes, MemoryTag tag)
      : tag_(tag), values_(static_cast<size_t>(bytes)), memory_(pool().allocate(bytes, tag)) {
    static uint32_t next = 1;
    for (auto& value : values_)
      value = static_cast<unsigned char>((next = next * 1664525 + 1013904223) >> 24);
    std::memcpy(memory_, values_.data(), values_.size());
  }
  ~Block() { pool().release(memory_, tag_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  bool is_unchanged() const { return std::memcmp(memory_, values_.data(), values_.size()) == 0; }

 private:
  MemoryTag tag_;
  std::vector<unsigned char> values_;
  void* memory_;
};

std::string error_of(const std::function<void()>& work, ErrorKind kind = ErrorKind::kInput) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(MemoryTurn, GivesMemoryBackAndBringsWhatIsKeptToTheSameAddresses) {
  const int64_t before = current_resident_bytes();
  Block kept(40 << 20, MemoryTag::kOptimizer), other(1000, MemoryTag::kOptimizer);
  Block dropped(40 << 20, MemoryTag::kKvCache);
  {
    MemoryTurn turn({}, "a rollout",
                    {{MemoryTag::kKvCache, PauseMode::kDrop}, {MemoryTag::kOptimizer, PauseMode::kKeep}});
    EXPECT_GE(turn.kept_bytes(), 40 << 20);
    EXPECT_LT(turn.kept_bytes(), 41 << 20);
    EXPECT_EQ(region(MemoryTag::kOptimizer).held, 0);
    EXPECT_EQ(region(MemoryTag::kKvCache).held, 0);
    // The three copies of the blocks that the test has, and what is kept; nothing of the regions.
    EXPECT_LT(current_resident_bytes() - before, 150 << 20);
  }
  EXPECT_TRUE(kept.is_unchanged());
  EXPECT_TRUE(other.is_unchanged());
  EXPECT_FALSE(dropped.is_unchanged());
}

TEST(MemoryTurn, WakesInTwoPhases) {
  Block weights(1 << 16, MemoryTag::kWeights), cache(1 << 16, MemoryTag::kKvCache);
  MemoryTurn turn({}, "an update",
                  {{MemoryTag::kKvCache, PauseMode::kDrop}, {MemoryTag::kWeights, PauseMode::kKeep}});
  turn.wake(MemoryTag::kWeights);
  EXPECT_TRUE(weights.is_unchanged());
  EXPECT_FALSE(region(MemoryTag::kWeights).paused);
  EXPECT_TRUE(region(MemoryTag::kKvCache).paused);
  turn.wake();
  EXPECT_FALSE(region(MemoryTag::kKvCache).paused);
}

TEST(MemoryTurn, ErrorsNameTheRegionAndTheTurn) {
  Block block(1000, MemoryTag::kOptimizer);
  MemoryTurn turn({}, "a rollout", {{MemoryTag::kOptimizer, PauseMode::kKeep}});
  for (const std::string& error :
       {error_of([] { pool().allocate(1, MemoryTag::kOptimizer); }), error_of([] {
          MemoryTurn({}, "an update", {{MemoryTag::kOptimizer, PauseMode::kKeep}});
        }),
        error_of([] { require_awake({}, MemoryTag::kOptimizer, "the update"); })}) {
    expect_has(error, "'optimizer'");
    expect_has(error, "during a rollout");
  }
  turn.wake();
  require_awake({}, MemoryTag::kOptimizer, "the update");
  expect_has(error_of([&] { turn.wake(MemoryTag::kOptimizer); }), "'optimizer' is awake already");
  expect_has(error_of([] {
               MemoryTurn({}, "a rollout", {{MemoryTag::kGradients, PauseMode::kDrop}});
             }),
             "'gradients' live in the region 'activations'");
}

// Of a turn that cannot begin nothing sleeps: neither what has gone to sleep before the error, nor the rest.
TEST(MemoryTurn, AnErrorHalfWayLeavesAllAwake) {
  Block kept(5000, MemoryTag::kOptimizer);
  error_of([] {
    MemoryTurn({}, "a rollout",
               {{MemoryTag::kOptimizer, PauseMode::kKeep}, {MemoryTag::kGradients, PauseMode::kDrop}});
  });
  EXPECT_FALSE(region(MemoryTag::kOptimizer).paused);
  EXPECT_TRUE(kept.is_unchanged());
}

// So large a block is never touched: it has addresses only.
TEST(MemoryTurn, WhatCannotBeKeptIsRefusedWithWhatWouldFit) {
  Block fits(5000, MemoryTag::kOptimizer);
  const int64_t limit = pool().limit(), large = available_host_bytes() + (1 << 20);
  pool().set_limit(large + limit);
  void* const huge = pool().allocate(large, MemoryTag::kWeights);
  const std::string error = error_of(
      [] {
        MemoryTurn({}, "a rollout",
                   {{MemoryTag::kWeights, PauseMode::kKeep}, {MemoryTag::kOptimizer, PauseMode::kKeep}});
      },
      ErrorKind::kResources);
  expect_has(error, "during a rollout");
  expect_has(error, "weights (");
  expect_has(error, "What would fit: optimizer (");
  EXPECT_FALSE(region(MemoryTag::kWeights).paused);
  EXPECT_FALSE(region(MemoryTag::kOptimizer).paused);
  pool().release(huge, MemoryTag::kWeights);
  pool().set_limit(limit);
  EXPECT_TRUE(fits.is_unchanged());
}

// Memory under the limit serves those whose turn it is; what they still have keeps others from waking.
TEST(MemoryTurn, WhatSleepsIsNotCountedAgainstTheLimit) {
  constexpr int64_t kMiB = 1 << 20;
  int64_t used = 0;
  for (const RegionUsage& each : pool().usage()) used += each.live;
  const int64_t limit = pool().limit();
  Block states(8 * kMiB, MemoryTag::kOptimizer);
  pool().set_limit(used + 10 * kMiB);
  error_of([] { pool().allocate(6 * kMiB, MemoryTag::kKvCache); }, ErrorKind::kResources);
  {
    MemoryTurn turn({}, "a rollout", {{MemoryTag::kOptimizer, PauseMode::kKeep}});
    void* const cache = pool().allocate(6 * kMiB, MemoryTag::kKvCache);
    const std::string error = error_of([&] { turn.wake(); }, ErrorKind::kResources);
    expect_has(error, "'optimizer' needs 8.00 MiB to wake");
    expect_has(error, "during a rollout");
    EXPECT_TRUE(region(MemoryTag::kOptimizer).paused);
    pool().release(cache, MemoryTag::kKvCache);
    turn.wake();
  }
  EXPECT_TRUE(states.is_unchanged());
  pool().set_limit(limit);
}

// An optimizer may be destroyed while its states sleep, as where an error ends a rollout.
TEST(MemoryTurn, BlocksMayBeReleasedWhileTheySleep) {
  auto first = std::make_unique<Block>(5000, MemoryTag::kOptimizer);
  Block second(7000, MemoryTag::kOptimizer);
  MemoryTurn turn({}, "a rollout", {{MemoryTag::kOptimizer, PauseMode::kKeep}});
  first.reset();
  turn.wake();
  EXPECT_TRUE(second.is_unchanged());
  const Block third(5000, MemoryTag::kOptimizer);
  EXPECT_TRUE(third.is_unchanged());
  EXPECT_TRUE(second.is_unchanged());
}

}  // namespace
}  // namespace temper
