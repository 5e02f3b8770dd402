#pragma once
#include "collectives/planned_calls.h"
#include "recipes/costs/machine.h"

namespace temper::recipes {

// What one rank does of a collective: bytes that leave it for ranks of its host and for others, and how long
// it takes.
struct CollectiveTime {
  double seconds = 0;
  double to_host = 0, to_network = 0;  // bytes
};

// Ranks are placed as the launcher does it: `ranks_of_host` that follow one another on each host.
//
// Collectives of NCCL pass the bytes around a ring: (n - 1) / n of the whole leave each of n ranks, twice of
// sums that all get (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009). Where a group has m ranks on each of several hosts there are m rings, whose bytes
// leave the host by the m ranks' networks. In an all-to-all, and in sums that ranks exchange and add up
// themselves (narrow numbers), each rank sends directly what is for another host by its own network.
// Latencies grow with the logarithm of the number of ranks.
CollectiveTime time_of(const collectives::PlannedCall& call, const Machine& machine, int ranks_of_host);

}  // namespace temper::recipes
