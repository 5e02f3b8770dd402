#include "collectives/local/local.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/parts/registry.h"
#include "collectives/launch.h"
#include "collectives/received_numbers.h"

namespace temper::collectives {
namespace {

// There is no other rank to wait for, and nothing to allocate.
class NoPairs final : public Pairs {
 public:
  NoPairs(const Group& group, PlannedCalls* calls) : Pairs(group), calls_(calls) {}

 private:
  void do_exchange(const PairCalls& pairs) override {
    if (calls_ == nullptr) return;
    const auto world = [&](int rank) { return group().world_ranks()[static_cast<size_t>(rank)]; };
    std::vector<int> ranks{world(group().rank())};
    double bytes = 0;
    const auto add = [&](const PairCall& call, int other) {
      ranks.push_back(world(other));
      bytes += static_cast<double>(call.tensor.bytes());
    };
    for (const PairCall& call : pairs.sent) add(call, call.to);
    for (const PairCall& call : pairs.received) add(call, call.from);
    calls_->asked({.kind = PlannedCall::Kind::kPairs, .ranks = ranks, .bytes = bytes});
  }

  PlannedCalls* calls_;
};

// One of `ranks` ranks of the whole run; the other ranks do not exist.
class Only final : public Group {
  using Kind = PlannedCall::Kind;
  using Place = PlannedCall::Place;

 public:
  Only(int rank, std::vector<int> ranks, std::string name, PlannedCalls* calls)
      : Group(place_of(rank, ranks), static_cast<int>(ranks.size()), std::move(name), ranks),
        calls_(calls),
        pairs_(*this, calls) {}
  Pairs& pairs() override { return pairs_; }

 private:
  void do_all_reduce(const Call&, const Tensor& values) override { sum(Kind::kAllReduce, values); }
  void do_all_gather(const Call&, const Tensor&, const Tensor& whole) override {
    tell(Kind::kAllGather, whole);
  }
  void do_reduce_scatter(const Call&, const Tensor& whole, const Tensor&) override {
    sum(Kind::kReduceScatter, whole);
  }
  void do_broadcast(const Call&, const Tensor& values) override { tell(Kind::kBroadcast, values); }
  void do_all_to_all(const Call&, const RowExchange& exchange) override {
    tell(Kind::kAllToAll, exchange.rows);
  }
  // The others bring what this one brings.
  std::vector<std::string> do_gather_objects(const Call&, std::string mine) override {
    if (calls_ != nullptr && !is_alone())
      calls_->asked(
          {.kind = Kind::kHostValues, .ranks = world_ranks(), .bytes = static_cast<double>(mine.size())});
    return std::vector<std::string>(static_cast<size_t>(size()), mine);
  }
  void do_disconnect() override { received_.give_back(); }
  void do_begin_together() override { is_together_ = true; }
  void do_end_together() override { is_together_ = joins_ = false; }
  void do_begin_overlap() override { overlaps_ = true; }
  void do_use_own_stream() override { overlapped_ = Place::kOwnOrder; }
  void do_end_overlap() override {
    if (std::exchange(overlaps_, false) && calls_ != nullptr) calls_->waits(overlapped_);
  }
  std::unique_ptr<Group> do_part(std::string name, std::vector<int> ranks, int) override {
    return std::make_unique<Only>(world_ranks()[static_cast<size_t>(rank())], std::move(ranks),
                                  std::move(name), calls_);
  }

  static int place_of(int rank, const std::vector<int>& ranks) {
    const auto found = std::ranges::find(ranks, rank);
    invariant(found != ranks.end(), "a rank is in its groups");
    return static_cast<int>(found - ranks.begin());
  }

  // Collectives of hosts do not overlap.
  void tell(Kind kind, const Tensor& tensor, bool exchanged = false) {
    if (calls_ == nullptr || is_alone()) return;
    calls_->asked({.kind = kind,
                   .place = overlaps_ && is_apart(tensor.device()) ? overlapped_ : Place::kInOrder,
                   .ranks = world_ranks(),
                   .bytes = static_cast<double>(tensor.bytes()),
                   .exchanged = exchanged,
                   .joins = joins_});
    joins_ = is_together_;
  }
  // With what a group of GPUs takes for sums.
  void sum(Kind kind, const Tensor& values) {
    const bool narrow = is_apart(values.device()) && ReceivedNumbers::are_of(values.dtype());
    if (narrow) received_.take(values.device());
    tell(kind, values, narrow);
  }

  PlannedCalls* const calls_;
  bool overlaps_ = false, is_together_ = false, joins_ = false;
  Place overlapped_ = Place::kOverlapped;
  ReceivedNumbers received_;
  NoPairs pairs_;
};

void launch_here(const LaunchOptions& options, const Body& body) {
  if (options.ranks != 1) fail("[collectives] local has one rank, and {} are asked for", options.ranks);
  body(alone());
}

}  // namespace

Group& alone() {
  static Only group(0, {0}, "local", nullptr);
  return group;
}

std::unique_ptr<Group> planned_group(int ranks, int rank, PlannedCalls* calls) {
  return std::make_unique<Only>(rank, all_ranks(ranks), "planned", calls);
}

void register_local() { registry<Launch>().add("local", launch_here); }

}  // namespace temper::collectives
