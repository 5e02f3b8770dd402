#include "recipes/parts/phases.h"

#include <gtest/gtest.h>

#include <array>

#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "tensor/tensor.h"

namespace temper::recipes {
namespace {

constexpr int64_t kMiB = 1 << 20;

Tensor bytes_of(int64_t count, MemoryTag tag) { return Tensor::empty({count}, DType::kU8, tag); }

// Each phase has a peak of its own, and the run the largest of all.
TEST(Phases, HavePeaksOfTheirOwn) {
  Phases phases{Device()};
  phases.end_update(collectives::alone());
  EXPECT_EQ(phases.update_bytes(), 0);  // of runs without rollouts nothing is counted
  const int64_t before = pool().usage()[static_cast<size_t>(MemoryTag::kKvCache)].live;
  phases.begin_rollout();
  bytes_of(64 * kMiB, MemoryTag::kKvCache);
  const int64_t rollout = phases.end_rollout(collectives::alone());
  bytes_of(8 * kMiB, MemoryTag::kActivations);
  phases.end_update(collectives::alone());
  EXPECT_EQ(rollout - phases.update_bytes(), 56 * kMiB);
  bytes_of(1 * kMiB, MemoryTag::kActivations);
  phases.end_update(collectives::alone());
  EXPECT_EQ(rollout - phases.update_bytes(), 63 * kMiB);
  EXPECT_GE(phases.usage()[static_cast<size_t>(MemoryTag::kKvCache)].peak, before + 64 * kMiB);
  EXPECT_GE(phases.peak_live(), rollout);
  EXPECT_GE(phases.peak_held(), 64 * kMiB);
}

// Two ranks with a device each, of which the second has more in use.
TEST(Phases, AreThoseOfTheRankWithMost) {
  std::array<int64_t, 2> rollouts{}, updates{};
  collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    const Device device{DeviceType::kCounted, ranks.rank()};
    Phases phases{device};
    phases.begin_rollout();
    Tensor::empty({(1 + 7 * ranks.rank()) * kMiB}, DType::kU8, MemoryTag::kKvCache, device);
    rollouts[rank] = phases.end_rollout(ranks);
    Tensor::empty({(2 + 3 * ranks.rank()) * kMiB}, DType::kU8, MemoryTag::kActivations, device);
    phases.end_update(ranks);
    updates[rank] = phases.update_bytes();
  });
  EXPECT_EQ(rollouts[0] - updates[0], 3 * kMiB);
  EXPECT_EQ(rollouts[1], rollouts[0]);
  EXPECT_EQ(updates[1], updates[0]);
}

}  // namespace
}  // namespace temper::recipes
