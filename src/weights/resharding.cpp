#include "weights/resharding.h"

#include <algorithm>

#include "base/error.h"

namespace temper {
namespace {

// Runs that follow one another in equal steps are one move.
void append(Resharding::Moves& moves, int64_t from, int64_t to, int64_t count) {
  if (!moves.empty()) {
    Resharding::Move& last = moves.back();
    if (last.repeats == 1 && last.from + last.count == from && last.to + last.count == to) {
      last.count += count;
      return;
    }
    const bool begins = last.repeats == 1;
    const int64_t from_stride = begins ? from - last.from : last.from_stride,
                  to_stride = begins ? to - last.to : last.to_stride;
    if (last.count == count && from == last.from + last.repeats * from_stride &&
        to == last.to + last.repeats * to_stride) {
      last.from_stride = from_stride;
      last.to_stride = to_stride;
      ++last.repeats;
      return;
    }
  }
  moves.push_back({from, to, count});
}

// Of what is `wanted` that which a rank has; the rest stays. Both are in the order of the whole.
Resharding::Moves take(std::vector<Slice>& wanted, const std::vector<Slice>& has) {
  Resharding::Moves moves;
  std::vector<Slice> rest;
  auto next = has.begin();
  for (Slice left : wanted) {
    while (left.count > 0) {
      while (next != has.end() && next->whole + next->count <= left.whole) ++next;
      if (next == has.end() || next->whole >= left.whole + left.count) break;
      if (const int64_t before = next->whole - left.whole; before > 0) {
        rest.push_back({left.whole, left.own, before});
        left = {next->whole, left.own + before, left.count - before};
      }
      const int64_t skipped = left.whole - next->whole, count = std::min(left.count, next->count - skipped);
      append(moves, next->own + skipped, left.own, count);
      left = {left.whole + count, left.own + count, left.count - count};
    }
    if (left.count > 0) rest.push_back(left);
  }
  wanted = std::move(rest);
  return moves;
}

}  // namespace

Resharding::Resharding(std::span<const Placement> from, std::span<const Placement> to, int rank)
    : sent_(from.size()), received_(from.size()) {
  invariant(from.size() == to.size() && !from.empty() && from.front().whole() == to.front().whole(),
            "the same ranks hold the same parameter in another way");
  const auto ranks = static_cast<int>(from.size());
  std::vector<std::vector<Slice>> held;
  for (const Placement& each : from) held.push_back(each.runs(each.part()));
  for (int receiver = 0; receiver < ranks; ++receiver) {
    const Placement& placement = to[static_cast<size_t>(receiver)];
    std::vector<Slice> wanted = placement.runs(placement.part());
    std::vector<bool> tried(static_cast<size_t>(from.front().parts()));  // another rank has the same
    for (int i = 0; i < ranks && !wanted.empty(); ++i) {
      const int sender = (receiver + i) % ranks;
      if (!from[static_cast<size_t>(sender)].is_here()) continue;
      const auto part = static_cast<size_t>(from[static_cast<size_t>(sender)].part());
      if (tried[part]) continue;
      tried[part] = true;
      Moves moves = take(wanted, held[static_cast<size_t>(sender)]);
      travels_ = travels_ || (sender != receiver && !moves.empty());
      if (receiver == rank) received_[static_cast<size_t>(sender)] = moves;
      if (sender == rank) sent_[static_cast<size_t>(receiver)] = std::move(moves);
    }
    invariant(wanted.empty(), "every element is somewhere");
  }
}

}  // namespace temper
