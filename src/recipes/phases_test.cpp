#include "recipes/phases.h"

#include <gtest/gtest.h>

#include "tensor/tensor.h"

namespace temper::recipes {
namespace {

constexpr int64_t kMiB = 1 << 20;

Tensor bytes_of(int64_t count, MemoryTag tag) { return Tensor::empty({count}, DType::kU8, tag); }

// Each phase has a peak of its own, and the run the largest of all.
TEST(Phases, HavePeaksOfTheirOwn) {
  Phases phases{Device()};
  phases.end_update();
  EXPECT_EQ(phases.update_bytes(), 0);  // of runs without rollouts nothing is counted
  const int64_t before = pool().usage()[static_cast<size_t>(MemoryTag::kKvCache)].live;
  phases.begin_rollout();
  bytes_of(64 * kMiB, MemoryTag::kKvCache);
  const int64_t rollout = phases.end_rollout();
  bytes_of(8 * kMiB, MemoryTag::kActivations);
  phases.end_update();
  EXPECT_EQ(rollout - phases.update_bytes(), 56 * kMiB);
  bytes_of(1 * kMiB, MemoryTag::kActivations);
  phases.end_update();
  EXPECT_EQ(rollout - phases.update_bytes(), 63 * kMiB);
  EXPECT_GE(phases.usage()[static_cast<size_t>(MemoryTag::kKvCache)].peak, before + 64 * kMiB);
  EXPECT_GE(phases.peak_live(), rollout);
  EXPECT_GE(phases.peak_held(), 64 * kMiB);
}

}  // namespace
}  // namespace temper::recipes
