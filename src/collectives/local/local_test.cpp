#include "collectives/local/local.h"

#include <gtest/gtest.h>

#include "collectives/received_numbers.h"
#include "tensor/arena.h"

namespace temper::collectives {
namespace {

// Of ranks with a GPU each a plan has what they receive for sums of narrow numbers (received_numbers.h).
TEST(Planned, GroupsOfGpusTakeTheMemoryOfTheirSums) {
  const Device gpu{DeviceType::kCounted, 1}, host{DeviceType::kCounted, 0};
  const auto live = [](Device device) {
    return pool(device).usage()[static_cast<size_t>(MemoryTag::kData)].live;
  };
  const int64_t before = live(gpu), on_host = live(host);
  const auto sum = [](Group& group, DType dtype, Device device) {
    group.all_reduce("numbers", Tensor::empty({8}, dtype, MemoryTag::kActivations, device));
  };
  const std::unique_ptr<Group> group = planned_group(4), part = group->part("part", {0, 1});
  sum(*group, DType::kF32, gpu);
  EXPECT_EQ(live(gpu), before);
  for (int i = 0; i < 2; ++i) sum(*group, DType::kBF16, gpu);
  EXPECT_EQ(live(gpu), before + ReceivedNumbers::kBytes);
  part->reduce_scatter("parts", Tensor::empty({8}, DType::kF16, MemoryTag::kActivations, gpu));
  EXPECT_EQ(live(gpu), before + 2 * ReceivedNumbers::kBytes);
  group->disconnect();
  EXPECT_EQ(live(gpu), before + ReceivedNumbers::kBytes);
  sum(*planned_group(4), DType::kBF16, host);
  sum(alone(), DType::kBF16, gpu);
  EXPECT_EQ(live(host), on_host);
  EXPECT_EQ(live(gpu), before + ReceivedNumbers::kBytes);
}

// A plan may be that of any rank, which has its place in each of its groups.
TEST(Planned, ARankIsInItsGroups) {
  const std::unique_ptr<Group> all = planned_group(6, 4), stage = all->part("stage", {3, 4, 5}),
                               pair = stage->part("pair", {1, 2});
  EXPECT_EQ(all->rank(), 4);
  EXPECT_EQ(stage->rank(), 1);
  EXPECT_EQ(stage->size(), 3);
  EXPECT_EQ(pair->rank(), 0);
  EXPECT_EQ(pair->world_ranks(), (std::vector{4, 5}));
}

// An arena is of work that is captured, whose memory a rollout's sleep takes away; the numbers stay.
TEST(Planned, WhatGpusReceiveIsInNoArena) {
  const Device gpu{DeviceType::kCounted, 1};
  Arena arena(gpu, MemoryTag::kGraphs);
  const Arena::Scope scope(arena);
  ReceivedNumbers received;
  received.take(gpu);
  EXPECT_EQ(arena.bytes(), 0);
}

TEST(Alone, TransfersOfARankAloneOrWithItselfAreRefused) {
  const Tensor values = Tensor::zeros({2}, DType::kF32);
  EXPECT_THROW(alone().pairs().send("x", values, 1), Error);
  EXPECT_THROW(alone().pairs().receive("x", values, 0), Error);
  const int other = 3;
  EXPECT_THROW(alone().pairs().connect({&other, 1}), Error);
  const std::unique_ptr<Group> planned = planned_group(2);
  planned->pairs().send("x", values, 1);
  EXPECT_THROW(planned->pairs().send("x", values, 0), Error);
  EXPECT_THROW(planned->pairs().send("x", Tensor::zeros({4, 4}, DType::kF32).narrow(1, 0, 2), 1), Error);
  const std::vector<Transfer> many(Pairs::kMostTransfers + 1, {"x", values, 1});
  EXPECT_THROW(planned->pairs().exchange(many, {}), Error);
}

}  // namespace
}  // namespace temper::collectives
