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

// "all_gather of 0 1: 16" and its like.
struct HeardCalls final : PlannedCalls {
  std::vector<std::string> calls;
  void asked(const PlannedCall& call) override {
    constexpr const char* kKinds[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                      "all_to_all", "pairs",      "host values"};
    constexpr const char* kPlaces[] = {"", " overlapped", " alone"};
    std::string text = kKinds[static_cast<size_t>(call.kind)];
    text += std::string(kPlaces[static_cast<size_t>(call.place)]) + " of";
    for (const int rank : call.ranks) text += " " + std::to_string(rank);
    calls.push_back(text + ": " + std::to_string(static_cast<int>(call.bytes)) +
                    (call.exchanged ? " exchanged" : "") + (call.joins ? " joins" : ""));
  }
  void waits(PlannedCall::Place place) override {
    calls.push_back(place == PlannedCall::Place::kOwnOrder ? "waits alone" : "waits");
  }
};

TEST(Planned, WhatIsAskedOfARankIsHeard) {
  HeardCalls heard;
  const std::unique_ptr<Group> group = planned_group(8, 5, &heard);
  const std::unique_ptr<Group> part = group->part("odd", {1, 3, 5, 7}), one = group->part("alone", {5});
  EXPECT_EQ(group->rank(), 5);
  EXPECT_EQ(part->rank(), 2);
  const Device gpu{DeviceType::kCounted, 1};
  const auto tensor = [&](int64_t rows, DType dtype = DType::kF32) {
    return Tensor::empty({rows}, dtype, MemoryTag::kActivations, gpu);
  };
  part->all_gather("x", tensor(2));
  part->reduce_scatter("x", tensor(8));
  group->all_reduce("x", tensor(8, DType::kBF16));
  const std::vector<int64_t> two(4, 2);
  part->all_to_all("x", tensor(8), two, two);
  part->pairs().send("x", tensor(4), 3);
  one->all_reduce("x", tensor(8));
  EXPECT_EQ(heard.calls,
            (std::vector<std::string>{"all_gather of 1 3 5 7: 32", "reduce_scatter of 1 3 5 7: 32",
                                      "all_reduce of 0 1 2 3 4 5 6 7: 16 exchanged",
                                      "all_to_all of 1 3 5 7: 32", "pairs of 5 7: 16"}));
}

TEST(Planned, WhatOverlapsIsHeardWithItsPlace) {
  HeardCalls heard;
  const std::unique_ptr<Group> group = planned_group(2, 0, &heard), other = group->part("other", {0, 1});
  other->use_own_stream();
  const auto tensor = [](int device) {
    return Tensor::empty({4}, DType::kF32, MemoryTag::kActivations, {DeviceType::kCounted, device});
  };
  group->begin_overlap();
  other->begin_overlap();
  {
    const Together together(*group);
    group->all_reduce("x", tensor(1));
    group->all_reduce("x", tensor(1));
  }
  group->all_reduce("x", tensor(0));  // hosts work in order
  other->all_reduce("x", tensor(1));
  group->gather("x", 1);
  group->end_overlap();
  other->end_overlap();
  other->end_overlap();  // nothing is left
  group->all_reduce("x", tensor(1));
  EXPECT_EQ(heard.calls, (std::vector<std::string>{
                             "all_reduce overlapped of 0 1: 16", "all_reduce overlapped of 0 1: 16 joins",
                             "all_reduce of 0 1: 16", "all_reduce alone of 0 1: 16", "host values of 0 1: 4",
                             "waits", "waits alone", "all_reduce of 0 1: 16"}));
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
