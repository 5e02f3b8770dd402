#include "parallel/weight_copy.h"

#include <cstring>

#include "base/error.h"
#include "checkpoints/states/placed_tensors.h"
#include "collectives/hosts.h"

namespace temper::parallel {
namespace {

Tensor flat(const Tensor& tensor) { return tensor.reshape({tensor.numel()}); }

// `repeats` runs of `count` elements, from `first` on in steps of `stride`; the last step may be shorter than
// the others.
struct Runs {
  Tensor most, last;  // [repeats - 1, count], [count]
};
Runs runs_of(const Tensor& elements, int64_t first, int64_t stride, const Resharding::Move& move) {
  const int64_t before = move.repeats - 1;
  Runs runs{{}, elements.narrow(0, first + before * stride, move.count)};
  if (before > 0)
    runs.most = elements.narrow(0, first, before * stride).reshape({before, stride}).narrow(1, 0, move.count);
  return runs;
}

void copy(const Runs& from, const Runs& to) {
  if (from.most.defined()) to.most.copy_from(from.most);
  to.last.copy_from(from.last);
}

int64_t elements_of(const Resharding::Moves& moves) {
  int64_t elements = 0;
  for (const Resharding::Move& move : moves) elements += move.elements();
  return elements;
}

std::vector<Layout> layouts_of(const layers::ParameterStore& store, int ranks) {
  std::vector<Layout> layouts;
  for (int rank = 0; rank < ranks; ++rank) layouts.push_back(store.layout().of_rank(store.table(), rank));
  return layouts;
}

}  // namespace

WeightCopy::WeightCopy(const layers::ParameterStore& from, layers::ParameterStore& to,
                       collectives::Group& ranks)
    : from_(from), to_(to), ranks_(ranks) {
  invariant(from.size() == to.size() && from.layout().ranks() == ranks.size() &&
                to.layout().ranks() == ranks.size(),
            "the same ranks divide the same weights in both ways");
  const std::vector<Layout> before = layouts_of(from, ranks.size()), after = layouts_of(to, ranks.size());
  for (size_t i = 0; i < from.size(); ++i) {
    std::vector<Placement> held, wanted;
    for (const Layout& layout : before) held.push_back(layout[i]);
    for (const Layout& layout : after) wanted.push_back(layout[i]);
    moves_.emplace_back(held, wanted, ranks.rank());
  }
}

void WeightCopy::run() {
  for (size_t i = 0; i < moves_.size(); ++i) move(i, moves_[i]);
  to_.changed();
}

// What stays on this rank goes its way alone; the rest is packed by receiver, and unpacked by sender.
void WeightCopy::move(size_t parameter, const Resharding& moves) const {
  const Tensor from = flat(from_.own(parameter)), to = flat(to_.own(parameter));
  for (const Resharding::Move& each : moves.sent_to(ranks_.rank()))
    copy(runs_of(from, each.from, each.from_stride, each), runs_of(to, each.to, each.to_stride, each));
  if (!moves.travels()) return;
  std::vector<int64_t> send(static_cast<size_t>(ranks_.size())), receive(send.size());
  int64_t sent = 0;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    sent += send[static_cast<size_t>(rank)] = elements_of(moves.sent_to(rank));
    receive[static_cast<size_t>(rank)] = elements_of(moves.received_from(rank));
  }
  const Tensor packed = Tensor::empty({sent, 1}, from.dtype(), MemoryTag::kWorkspace, from.device());
  const auto each_packed = [&](const Tensor& buffer, auto moves_of, auto use) {
    const Tensor elements = flat(buffer);
    int64_t at = 0;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == ranks_.rank()) continue;
      for (const Resharding::Move& each : moves_of(rank)) {
        use(each, runs_of(elements, at, each.count, each));
        at += each.elements();
      }
    }
  };
  each_packed(
      packed, [&](int rank) -> const Resharding::Moves& { return moves.sent_to(rank); },
      [&](const Resharding::Move& each, const Runs& place) {
        copy(runs_of(from, each.from, each.from_stride, each), place);
      });
  const Tensor received = ranks_.all_to_all(from_.spec(parameter).name, packed, send, receive);
  each_packed(
      received, [&](int rank) -> const Resharding::Moves& { return moves.received_from(rank); },
      [&](const Resharding::Move& each, const Runs& place) {
        copy(place, runs_of(to, each.to, each.to_stride, each));
      });
}

void WeightCopy::check() const {
  for (size_t i = 0; i < moves_.size(); ++i) {
    const std::string& name = from_.spec(i).name;
    const Tensor whole = checkpoints::whole_of({name, from_.own(i), &from_.layout()[i]}, ranks_),
                 own = flat(to_.own(i)).on({});
    const Tensor expected =
        Tensor::empty(to_.layout()[i].own(), whole.dtype(), MemoryTag::kWorkspace, whole.device());
    to_.layout()[i].take_own(whole, expected);
    const Tensor wanted = flat(expected).on({});
    const auto *found = static_cast<const std::byte*>(own.raw()),
               *right = static_cast<const std::byte*>(wanted.raw());
    if (std::memcmp(found, right, static_cast<size_t>(own.bytes())) == 0) continue;
    const int64_t at = std::mismatch(found, found + own.bytes(), right).first - found;
    throw Error(
        fmt::format("[grpo.engine.check_sync] after a copy '{}' is another on rank {}, from element {} of "
                    "{} on, than in training; please report it",
                    name, collectives::with_host(ranks_, ranks_.rank()), at / size_of(own.dtype()),
                    own.numel()),
        ErrorKind::kDefect);
  }
}

int64_t WeightCopy::bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < moves_.size(); ++i) bytes += to_.own(i).bytes();
  return bytes;
}

int64_t WeightCopy::bytes_received() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < moves_.size(); ++i)
    for (int rank = 0; rank < ranks_.size(); ++rank)
      if (rank != ranks_.rank())
        bytes += elements_of(moves_[i].received_from(rank)) * size_of(to_.own(i).dtype());
  return bytes;
}

}  // namespace temper::parallel
