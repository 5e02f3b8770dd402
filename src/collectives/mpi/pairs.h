#pragma once
#include <memory>

#include "collectives/mpi/network.h"
#include "collectives/pairs.h"

namespace temper::collectives {

// A transfer is a header and, where that is the one that the other rank expects, the tensor. Both are sent at
// once; the receiving rank asks for the next one behind it.
class MpiPairs final : public Pairs {
 public:
  // `tag`: of the group's messages.
  MpiPairs(const Group& group, Network& network, int tag) : Pairs(group), network_(network), tag_(tag) {}

 private:
  struct Buffers;
  class Incoming;
  void do_exchange(const PairCalls& calls) override;

  Network& network_;
  const int tag_;
};

}  // namespace temper::collectives
