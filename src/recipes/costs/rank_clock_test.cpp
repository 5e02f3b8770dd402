#include "recipes/costs/rank_clock.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

using collectives::PlannedCall;
using Place = PlannedCall::Place;

// A byte and an operation take a second.
Machine unit_machine(double slowdown = 0) {
  Machine machine;
  machine.ops[std::string(Machine::kProducts)] = {.of_flops = true, .curve = {{{1, 1}}}};
  machine.ops[std::string(Machine::kMoves)] = {.curve = {{{1, 1}}}};
  machine.host = {.bytes_per_second = 1, .slowdown = slowdown};
  machine.network = {.bytes_per_second = 1};
  return machine;
}

class Clock : public ::testing::Test {
 protected:
  // Of `seconds`, between two ranks of one host.
  void gather(double seconds, Place place) {
    clock_.asked(
        {.kind = PlannedCall::Kind::kAllGather, .place = place, .ranks = kPair, .bytes = 2 * seconds});
  }
  void work(double seconds) {
    const trace::Span op("op", [&] { return trace::OpWork{{seconds, 0}, {}}; });
  }

  static constexpr std::array kPair{0, 1};
  Machine machine_ = unit_machine(0.5);
  RankClock clock_{machine_, 8};
  trace::Listener::Scope listening_{clock_};
};

TEST_F(Clock, WorkInOrderAddsUp) {
  work(3);
  gather(2, Place::kInOrder);
  work(1);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 6);
  EXPECT_DOUBLE_EQ(clock_.all().waiting, 2);
  EXPECT_DOUBLE_EQ(clock_.all().flops, 4);
  EXPECT_DOUBLE_EQ(clock_.all().to_host, 2);
}

// 4 seconds of a collective; 2 of work take them at half of the speed, and 1 more is alone.
TEST_F(Clock, OverlappedCollectivesSlowWorkDown) {
  work(1);
  gather(4, Place::kOverlapped);
  work(3);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 6);
  clock_.waits(Place::kOverlapped);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 6);
  EXPECT_DOUBLE_EQ(clock_.all().waiting, 0);
}

TEST_F(Clock, WhatIsNotDoneIsWaitedFor) {
  gather(4, Place::kOverlapped);
  gather(4, Place::kOverlapped);  // behind the first one
  work(1);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 2);
  clock_.waits(Place::kOwnOrder);  // another order
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 2);
  clock_.waits(Place::kOverlapped);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 8);
  EXPECT_DOUBLE_EQ(clock_.all().waiting, 6);
}

TEST_F(Clock, GroupsApartDoNotWaitForEachOther) {
  gather(4, Place::kOverlapped);
  gather(1, Place::kOwnOrder);
  clock_.waits(Place::kOwnOrder);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 1);
  clock_.waits(Place::kOverlapped);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 4);
}

TEST_F(Clock, PassesAndTheUpdateAreToldApart) {
  gather(1, Place::kInOrder);
  {
    const trace::Span forward("forward");
    work(2);
  }
  {
    const trace::Span backward("backward");
    work(4);
    gather(1, Place::kInOrder);
  }
  {
    const trace::Span update("update");
    work(8);
  }
  EXPECT_DOUBLE_EQ(clock_.before_passes().seconds, 1);
  ASSERT_EQ(clock_.passes().size(), 2u);
  EXPECT_TRUE(clock_.passes()[0].is_forward);
  EXPECT_DOUBLE_EQ(clock_.passes()[0].work.seconds, 2);
  EXPECT_FALSE(clock_.passes()[1].is_forward);
  EXPECT_DOUBLE_EQ(clock_.passes()[1].work.seconds, 5);
  EXPECT_DOUBLE_EQ(clock_.passes()[1].work.to_host, 1);
  EXPECT_DOUBLE_EQ(clock_.update().seconds, 8);
  EXPECT_DOUBLE_EQ(clock_.all().seconds, 16);
}

TEST(RankClock, RanksThatShareCoresHaveAPartOfTheSpeed) {
  Machine machine = unit_machine();
  machine.shares_cores = true;
  RankClock clock(machine, 4);
  const trace::Listener::Scope listening(clock);
  {
    const trace::Span op("op", [] { return trace::OpWork{{3, 0}, {}}; });
  }
  EXPECT_DOUBLE_EQ(clock.all().seconds, 12);
}

TEST(RankClock, NothingCountsWhileNobodyListens) {
  const Machine machine = unit_machine();
  RankClock clock(machine, 4);
  constexpr std::array kPair{0, 1};
  clock.asked({.kind = PlannedCall::Kind::kAllGather, .ranks = kPair, .bytes = 2});
  EXPECT_EQ(clock.all().seconds, 0);
}

}  // namespace
}  // namespace temper::recipes
