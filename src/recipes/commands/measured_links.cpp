#include "recipes/commands/measured_links.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/clock.h"
#include "base/error.h"
#include "device/transfer.h"
#include "models/model.h"
#include "ops/linear/linear.h"

namespace temper::recipes {
namespace {

constexpr int64_t kWidth = 2048;

class LinkTimer {
 public:
  LinkTimer(collectives::Group& ranks, const Machine& machine) : ranks_(ranks), machine_(machine) {}

  // A call takes this long on the slowest rank, in a row of several.
  double seconds_of(int calls, const std::function<void()>& call) const {
    call();
    synchronize(machine_.facts.device);
    ranks_.barrier("a measured collective");
    const double begin = seconds_now();
    for (int i = 0; i < calls; ++i) call();
    synchronize(machine_.facts.device);
    double slowest = 0;
    for (const double each : ranks_.gather("seconds", seconds_now() - begin))
      slowest = std::max(slowest, each / calls);
    return slowest;
  }

  Tensor rows(int64_t count) const {
    return Tensor::zeros({count, kWidth}, machine_.dtype, MemoryTag::kData, machine_.facts.device);
  }

 private:
  collectives::Group& ranks_;
  const Machine& machine_;
};

// Of a few rows, whose bytes take no time.
double latency_of(collectives::Group& ranks, const LinkTimer& timer) {
  const Tensor whole = timer.rows(ranks.size()), part = whole.narrow(0, ranks.rank(), 1);
  const double seconds = timer.seconds_of(50, [&] { ranks.all_gather_into("few rows", part, whole); });
  return seconds / std::max(1.0, std::log2(ranks.size()));
}

// Of all kinds of collectives on tensors of the size of a layer's matrices.
double speed_of(collectives::Group& ranks, const LinkTimer& timer, int64_t rows_of_rank) {
  const Tensor whole = timer.rows(rows_of_rank * ranks.size()),
               part = whole.narrow(0, ranks.rank() * rows_of_rank, rows_of_rank);
  const std::vector<int64_t> even(static_cast<size_t>(ranks.size()), rows_of_rank);
  const auto leaving = static_cast<double>(part.bytes()) * (ranks.size() - 1);
  double bytes = 0, seconds = 0;
  const auto add = [&](double times, const std::function<void()>& call) {
    bytes += times * leaving;
    seconds += timer.seconds_of(10, call);
  };
  add(1, [&] { ranks.all_gather_into("rows", part, whole); });
  add(1, [&] { ranks.reduce_scatter_into("rows", whole, part); });
  add(2, [&] { ranks.all_reduce("rows", whole); });
  add(1, [&] { ranks.all_to_all("rows", whole, even, even); });
  return bytes / seconds;
}

// What matrix multiplications lose of the time of a collective that they overlap with.
double slowdown_of(collectives::Group& ranks, const LinkTimer& timer, const Machine& machine,
                   int64_t rows_of_rank) {
  constexpr int kProducts = 16;
  models::BuildOptions build;
  build.dtype = machine.dtype;
  build.facts = machine.facts;
  const ops::BoundOps bound = models::bind_kernels(models::typical_config(), "a typical model", build);
  Tape tape(false);
  const Var x = tape.constant(timer.rows(4096)), weight = tape.constant(timer.rows(8192));
  const auto multiply = [&] {
    for (int i = 0; i < kProducts; ++i) ops::linear(tape, bound, x, weight);
  };
  const Tensor whole = timer.rows(rows_of_rank * ranks.size()),
               part = whole.narrow(0, ranks.rank() * rows_of_rank, rows_of_rank);
  const auto gather = [&] { ranks.all_gather_into("rows", part, whole); };
  const double products = timer.seconds_of(5, multiply), one = timer.seconds_of(10, gather);
  const int gathers = std::max(1, static_cast<int>(products / one / 2));
  const double both = timer.seconds_of(5, [&] {
    ranks.begin_overlap();
    for (int i = 0; i < gathers; ++i) gather();
    multiply();
    ranks.end_overlap();
  });
  constexpr double kMost = 0.95;  // something is always gained where nothing waits
  return std::clamp((both - products) / (gathers * one), 0.0, kMost);
}

}  // namespace

void measure_links(collectives::Group& ranks, Machine& machine) {
  if (ranks.is_alone()) return;
  const int here = ranks.on_machine().ranks;
  if (here != 1 && here != ranks.size())
    fail(
        "[plan] {} of {} ranks are on this host; start all of them on one host, or each on a host of its own",
        here, ranks.size());
  const bool apart = machine.facts.device.type != DeviceType::kCpu;
  const LinkTimer timer(ranks, machine);
  const int64_t rows_of_rank = apart ? 16384 : 512;
  Link& link = here == 1 ? machine.network : machine.host;
  link.latency = latency_of(ranks, timer);
  link.bytes_per_second = speed_of(ranks, timer, rows_of_rank);
  link.slowdown = apart ? slowdown_of(ranks, timer, machine, rows_of_rank) : 0;
  link.source = Source::kMeasured;
}

}  // namespace temper::recipes
