#include "collectives/local/local.h"

#include <algorithm>

#include "base/error.h"
#include "base/parts/registry.h"
#include "collectives/launch.h"
#include "collectives/received_numbers.h"

namespace temper::collectives {
namespace {

// There is no other rank to wait for, and nothing to allocate.
class NoPairs final : public Pairs {
 public:
  using Pairs::Pairs;

 private:
  void do_exchange(const PairCalls&) override {}
};

// One of `ranks` ranks of the whole run; the other ranks do not exist.
class Only final : public Group {
 public:
  Only(int rank, std::vector<int> ranks, std::string name)
      : Group(place_of(rank, ranks), static_cast<int>(ranks.size()), std::move(name), ranks), pairs_(*this) {}
  Pairs& pairs() override { return pairs_; }

 private:
  void do_all_reduce(const Call&, const Tensor& values) override { receive(values); }
  void do_all_gather(const Call&, const Tensor&, const Tensor&) override {}
  void do_reduce_scatter(const Call&, const Tensor& whole, const Tensor&) override { receive(whole); }
  void do_broadcast(const Call&, const Tensor&) override {}
  void do_all_to_all(const Call&, const RowExchange&) override {}
  // The others bring what this one brings.
  std::vector<std::string> do_gather_objects(const Call&, std::string mine) override {
    return std::vector<std::string>(static_cast<size_t>(size()), mine);
  }
  void do_disconnect() override { received_.give_back(); }
  std::unique_ptr<Group> do_part(std::string name, std::vector<int> ranks, int) override {
    return std::make_unique<Only>(world_ranks()[static_cast<size_t>(rank())], std::move(ranks),
                                  std::move(name));
  }

  static int place_of(int rank, const std::vector<int>& ranks) {
    const auto found = std::ranges::find(ranks, rank);
    invariant(found != ranks.end(), "a rank is in its groups");
    return static_cast<int>(found - ranks.begin());
  }

  // What a group of GPUs takes for sums.
  void receive(const Tensor& values) {
    if (is_apart(values.device()) && ReceivedNumbers::are_of(values.dtype())) received_.take(values.device());
  }

  ReceivedNumbers received_;
  NoPairs pairs_;
};

void launch_here(const LaunchOptions& options, const Body& body) {
  if (options.ranks != 1) fail("[collectives] local has one rank, and {} are asked for", options.ranks);
  body(alone());
}

}  // namespace

Group& alone() {
  static Only group(0, {0}, "local");
  return group;
}

std::unique_ptr<Group> planned_group(int ranks, int rank) {
  return std::make_unique<Only>(rank, all_ranks(ranks), "planned");
}

void register_local() { registry<Launch>().add("local", launch_here); }

}  // namespace temper::collectives
