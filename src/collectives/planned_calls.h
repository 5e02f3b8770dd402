#pragma once
#include <cstdint>
#include <span>

namespace temper::collectives {

// A collective, or a transfer between pairs of ranks, that a planned rank asks for.
struct PlannedCall {
  enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll, kPairs, kHostValues };
  // Where it runs on the rank's device: in order with the device's other work, next to it with those of the
  // other groups, or next to it in the order of its own group alone (Group::use_own_stream).
  enum class Place { kInOrder, kOverlapped, kOwnOrder };

  Kind kind = Kind::kAllReduce;
  Place place = Place::kInOrder;
  std::span<const int> ranks = {};  // of the run, in the group's order; of pairs this rank and the others
  // Of what travels: the whole tensor of all_reduce, all_gather, reduce_scatter and broadcast, the rows that
  // the rank brings to all_to_all (its own among them), what it sends and receives of pairs, what it brings
  // of host values.
  double bytes = 0;
  // Narrow numbers that ranks exchange, add up and, where all get the sums, gather (ranks.md, Rounding).
  bool exchanged = false;
  bool joins = false;  // it starts together with the call before it (Together)
};

// Hears what the groups of one planned rank are asked for, in its order.
class PlannedCalls {
 public:
  virtual ~PlannedCalls() = default;
  virtual void asked(const PlannedCall& call) = 0;
  // The device's later work waits for all collectives that were asked for at this place.
  virtual void waits(PlannedCall::Place place) = 0;
};

}  // namespace temper::collectives
