#include "recipes/costs/collective_times.h"

#include <algorithm>
#include <cmath>

namespace temper::recipes {
namespace {

using collectives::PlannedCall;
using Kind = PlannedCall::Kind;

// How often the whole passes a rank.
double passes_of(Kind kind) { return kind == Kind::kAllReduce ? 2 : 1; }

class Ranks {
 public:
  Ranks(const PlannedCall& call, int of_host) : all_(static_cast<double>(call.ranks.size())) {
    const auto host = [&](int rank) { return rank / of_host; };
    const int own = host(call.ranks.front());
    here_ =
        static_cast<double>(std::ranges::count_if(call.ranks, [&](int rank) { return host(rank) == own; }));
  }
  double all() const { return all_; }
  double here() const { return here_; }  // on one host
  bool on_several_hosts() const { return here_ < all_; }

 private:
  double all_, here_;
};

double latency_of(const Ranks& ranks, const Machine& machine, bool joins) {
  if (joins) return 0;
  const double hosts = std::ceil(ranks.all() / ranks.here());
  return machine.host.latency * std::max(1.0, std::log2(ranks.here())) +
         (ranks.on_several_hosts() ? machine.network.latency * std::log2(hosts + 1) : 0);
}

// Each rank sends to each other one.
CollectiveTime direct(const PlannedCall& call, const Ranks& ranks) {
  const double of_rank = passes_of(call.kind) * call.bytes / ranks.all();
  return {.to_host = of_rank * (ranks.here() - 1), .to_network = of_rank * (ranks.all() - ranks.here())};
}

// Of a ring through several hosts every rank sends to its neighbour, and one of each host's to the next host.
CollectiveTime around(const PlannedCall& call, const Ranks& ranks) {
  const double share = call.kind == Kind::kBroadcast ? 1 : (ranks.all() - 1) / ranks.all();
  const double leaving = passes_of(call.kind) * share * call.bytes;
  if (!ranks.on_several_hosts()) return {.to_host = leaving};
  return {.to_host = ranks.here() > 1 ? leaving : 0, .to_network = leaving / ranks.here()};
}

CollectiveTime between_pairs(const PlannedCall& call, const Machine& machine, int of_host) {
  const auto transfers = static_cast<double>(call.ranks.size() - 1);
  CollectiveTime time;
  for (size_t i = 1; i < call.ranks.size(); ++i)
    (call.ranks[i] / of_host == call.ranks[0] / of_host ? time.to_host : time.to_network) +=
        call.bytes / transfers;
  time.seconds =
      std::max(time.to_host / machine.host.bytes_per_second + (time.to_host > 0 ? machine.host.latency : 0),
               time.to_network / machine.network.bytes_per_second +
                   (time.to_network > 0 ? machine.network.latency : 0));
  return time;
}

}  // namespace

CollectiveTime time_of(const PlannedCall& call, const Machine& machine, int ranks_of_host) {
  if (call.kind == Kind::kPairs) return between_pairs(call, machine, ranks_of_host);
  const Ranks ranks(call, ranks_of_host);
  const double latency = latency_of(ranks, machine, call.joins);
  // Hosts gather what each brings while the devices compute; only their meeting is waited for.
  if (call.kind == Kind::kHostValues) return {.seconds = latency};
  const bool is_direct = call.exchanged || call.kind == Kind::kAllToAll;
  CollectiveTime time = is_direct ? direct(call, ranks) : around(call, ranks);
  time.seconds = latency + std::max(time.to_host / machine.host.bytes_per_second,
                                    time.to_network / machine.network.bytes_per_second);
  return time;
}

}  // namespace temper::recipes
