#include "recipes/costs/collective_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace temper::recipes {
namespace {

using collectives::PlannedCall;
using Kind = PlannedCall::Kind;

// A gigabyte a second in a host, a tenth of it between hosts, nothing else takes time.
Machine slow_machine() {
  Machine machine;
  machine.host = {.bytes_per_second = 1e9};
  machine.network = {.bytes_per_second = 1e8};
  return machine;
}

std::vector<int> ranks_from(int first, int count, int step = 1) {
  std::vector<int> ranks(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<size_t>(i)] = first + i * step;
  return ranks;
}

CollectiveTime time_of_all(Kind kind, const std::vector<int>& ranks, bool exchanged = false) {
  return time_of({.kind = kind, .ranks = ranks, .bytes = 8e9, .exchanged = exchanged}, slow_machine(), 4);
}

TEST(CollectiveTimes, OnOneHostARingPassesTheWholeOnceOrTwice) {
  const std::vector<int> four = ranks_from(0, 4);
  EXPECT_DOUBLE_EQ(time_of_all(Kind::kAllGather, four).to_host, 6e9);
  EXPECT_DOUBLE_EQ(time_of_all(Kind::kReduceScatter, four).to_host, 6e9);
  EXPECT_DOUBLE_EQ(time_of_all(Kind::kAllReduce, four).to_host, 12e9);
  EXPECT_DOUBLE_EQ(time_of_all(Kind::kAllReduce, four).seconds, 12);
  EXPECT_DOUBLE_EQ(time_of_all(Kind::kAllToAll, four).to_host, 6e9);
  EXPECT_EQ(time_of_all(Kind::kAllReduce, four).to_network, 0);
  // What is exchanged moves as many bytes there.
  EXPECT_DOUBLE_EQ(time_of_all(Kind::kAllReduce, four, true).to_host, 12e9);
}

// Two hosts of four: rings leave a host by the networks of all four ranks.
TEST(CollectiveTimes, RingsThroughSeveralHostsUseAllOfTheirNetworks) {
  const CollectiveTime gathered = time_of_all(Kind::kAllGather, ranks_from(0, 8));
  EXPECT_DOUBLE_EQ(gathered.to_host, 7e9);
  EXPECT_DOUBLE_EQ(gathered.to_network, 7e9 / 4);
  EXPECT_DOUBLE_EQ(gathered.seconds, 17.5);
  // One rank of each host: nothing stays in it.
  const CollectiveTime apart = time_of_all(Kind::kAllGather, ranks_from(1, 2, 4));
  EXPECT_EQ(apart.to_host, 0);
  EXPECT_DOUBLE_EQ(apart.to_network, 4e9);
  EXPECT_DOUBLE_EQ(apart.seconds, 40);
}

// Each rank sends by its own network what all ranks of the other host are to have.
TEST(CollectiveTimes, WhatRanksExchangeGoesStraightToOtherHosts) {
  for (const bool exchanged : {true, false}) {
    const CollectiveTime time =
        time_of_all(exchanged ? Kind::kReduceScatter : Kind::kAllToAll, ranks_from(0, 8), exchanged);
    EXPECT_DOUBLE_EQ(time.to_host, 3e9);
    EXPECT_DOUBLE_EQ(time.to_network, 4e9);
    EXPECT_DOUBLE_EQ(time.seconds, 40);
  }
}

TEST(CollectiveTimes, PairsSendInOrBetweenHosts) {
  const auto between = [](int other) {
    const std::vector<int> pair{2, other};
    return time_of({.kind = Kind::kPairs, .ranks = pair, .bytes = 1e9}, slow_machine(), 4);
  };
  EXPECT_DOUBLE_EQ(between(3).seconds, 1);
  EXPECT_DOUBLE_EQ(between(4).seconds, 10);
  EXPECT_DOUBLE_EQ(between(4).to_network, 1e9);
}

TEST(CollectiveTimes, LatenciesGrowWithTheLogarithmOfTheRanks) {
  Machine machine = slow_machine();
  machine.host.latency = 1e-3;
  const auto seconds = [&](int ranks, bool joins) {
    const std::vector<int> all = ranks_from(0, ranks);
    return time_of({.kind = Kind::kAllReduce, .ranks = all, .bytes = 0, .joins = joins}, machine, 16).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(2, false), 1e-3);
  EXPECT_DOUBLE_EQ(seconds(16, false), 4e-3);
  EXPECT_EQ(seconds(16, true), 0);
}

}  // namespace
}  // namespace temper::recipes
