#pragma once
#include <span>
#include <vector>

#include "weights/layout.h"

namespace temper {

// How what ranks hold of one parameter in one layout becomes what the same ranks hold of it in another: which
// elements a rank sends to which, and where each of them puts what it gets. Elements that a rank has already
// do not travel; others come from the next rank that has them, so that replicas share the work. All ranks
// find the same.
class Resharding {
 public:
  // Runs of `count` elements, `repeats` times, each this number of elements behind the one before.
  struct Move {
    int64_t from = 0, to = 0;  // the first, in what the sender and the receiver hold
    int64_t count = 0;
    int64_t repeats = 1;
    int64_t from_stride = 0, to_stride = 0;

    int64_t elements() const { return count * repeats; }
    bool operator==(const Move&) const = default;
  };
  using Moves = std::vector<Move>;

  // Of the parameter what each rank holds, by rank, before and afterwards; for `rank`.
  Resharding(std::span<const Placement> from, std::span<const Placement> to, int rank);

  // In the order of the whole parameter, which is the same for sender and receiver.
  const Moves& sent_to(int rank) const { return sent_[static_cast<size_t>(rank)]; }
  const Moves& received_from(int rank) const { return received_[static_cast<size_t>(rank)]; }
  // Whether any rank sends something to another one.
  bool travels() const { return travels_; }

 private:
  std::vector<Moves> sent_, received_;
  bool travels_ = false;
};

}  // namespace temper
