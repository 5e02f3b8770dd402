#include "parallel/pipeline/transfers.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "base/error.h"

namespace temper::parallel {
namespace {

using Orders = std::vector<std::vector<Action>>;

struct Interval {
  double begin = 0, end = 0;
};

// When each pass runs if what others compute is there at once.
class FreeRun {
 public:
  FreeRun(const PipelineShape& shape, const Orders& orders, const PartCosts& costs)
      : shape_(shape),
        orders_(orders),
        costs_(costs),
        forward_(static_cast<size_t>(shape.parts()) * static_cast<size_t>(shape.micro_batches)),
        backward_(forward_.size()) {
    times_.resize(orders.size());
    while (advance())
      ;
    for (size_t rank = 0; rank < orders.size(); ++rank)
      invariant(
          times_[rank].size() == orders[rank].size(),
          fmt::format("[pipeline] rank {} waits forever for {}", rank,
                      times_[rank].size() < orders[rank].size() ? to_string(orders[rank][times_[rank].size()])
                                                                : "nothing"));
  }

  const std::vector<Interval>& of(int rank) const { return times_[static_cast<size_t>(rank)]; }
  // Not one that waits for the gradient of weights.
  const Interval& forward(int part, int micro_batch) const { return forward_[at(part, micro_batch)]; }
  const Interval& backward(int part, int micro_batch) const { return backward_[at(part, micro_batch)]; }

 private:
  size_t at(int part, int micro_batch) const {
    return static_cast<size_t>(part) * static_cast<size_t>(shape_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }

  // When what a pass of this part reads is there; negative: not yet.
  double ready(const Action& action, int part) const {
    const auto end = [&](const std::vector<Interval>& of, int other) {
      const double at_end = of[at(other, action.micro_batch)].end;
      return at_end > 0 ? at_end : -1;
    };
    if (action.act == Act::kBackwardWeight) return end(backward_, part);
    if (action.act == Act::kForward) {
      const double input = part == 0 ? 0 : end(forward_, part - 1);
      // What it makes would fill memory if it went as fast as it can.
      const int earlier = action.micro_batch - kFrozenAhead;
      if (shape_.is_trained(part) || earlier < 0 || input < 0) return input;
      const Interval& next = forward_[at(part + 1, earlier)];
      return next.end > 0 ? std::max(input, next.begin) : -1;
    }
    const double own = end(forward_, part);
    if (part == shape_.parts() - 1 || own < 0) return own;
    const double behind = end(backward_, part + 1);
    return behind < 0 ? behind : std::max(own, behind);
  }

  bool advance() {
    bool any = false;
    for (size_t rank = 0; rank < orders_.size(); ++rank)
      while (times_[rank].size() < orders_[rank].size()) {
        const Action& action = orders_[rank][times_[rank].size()];
        const int part = shape_.part(static_cast<int>(rank), action.chunk);
        const double from = ready(action, part);
        if (from < 0) break;
        const double begin = std::max(from, times_[rank].empty() ? 0 : times_[rank].back().end);
        times_[rank].push_back({begin, begin + costs_.of(action.act)});
        if (action.act == Act::kForward)
          forward_[at(part, action.micro_batch)] = times_[rank].back();
        else if (action.act != Act::kBackwardWeight)
          backward_[at(part, action.micro_batch)] = times_[rank].back();
        any = true;
      }
    return any;
  }

  const PipelineShape& shape_;
  const Orders& orders_;
  const PartCosts& costs_;
  std::vector<std::vector<Interval>> times_;  // by rank and pass
  std::vector<Interval> forward_, backward_;  // by part and micro-batch; an end of 0: not yet
};

// What a transfer at a moment delays: a rank that computes comes later, and the next pass of the other one
// waits for it.
class Meeting {
 public:
  Meeting(const std::vector<Interval>& sender, const std::vector<Interval>& receiver)
      : ranks_{&sender, &receiver} {}

  // The moment in [earliest, latest] that delays least, and the first one of these.
  double best(double earliest, double latest) const {
    double best = earliest, least = delay(earliest);
    for (const std::vector<Interval>* const rank : ranks_)
      for (auto pass = after(*rank, earliest); pass != rank->end() && pass->begin <= latest; ++pass)
        for (const double moment : {pass->begin, pass->end}) {
          if (moment < earliest || moment > latest) continue;
          const double found = delay(moment);
          if (std::tie(found, moment) < std::tie(least, best))
            std::tie(least, best) = std::tie(found, moment);
        }
    return best;
  }

 private:
  using Pass = std::vector<Interval>::const_iterator;
  // The first pass that ends behind this moment.
  static Pass after(const std::vector<Interval>& rank, double moment) {
    return std::partition_point(rank.begin(), rank.end(),
                                [&](const Interval& pass) { return pass.end <= moment; });
  }
  double delay(double moment) const {
    double meet = moment;
    std::array<double, 2> next{};
    for (size_t i = 0; i < 2; ++i) {
      Pass pass = after(*ranks_[i], moment);
      if (pass != ranks_[i]->end() && pass->begin < moment) meet = std::max(meet, (pass++)->end);
      next[i] = pass == ranks_[i]->end() ? std::numeric_limits<double>::infinity() : pass->begin;
    }
    return std::max(0.0, meet - next[0]) + std::max(0.0, meet - next[1]);
  }

  const std::array<const std::vector<Interval>*, 2> ranks_;
};

// An action and its place in the order of all ranks: transfers come before the passes that begin at their
// moment.
struct Placed {
  double moment = 0;
  bool is_pass = false;
  int number = 0;  // of a transfer, the same on both ranks
  Action action;

  auto place() const { return std::tie(moment, is_pass, number); }
};

class Placement {
 public:
  Placement(const PipelineShape& shape, const Orders& orders, const PartCosts& costs)
      : shape_(shape), run_(shape, orders, costs) {
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      std::vector<Placed>& placed = ranks_.emplace_back();
      for (size_t i = 0; i < orders[rank].size(); ++i)
        placed.push_back({run_.of(static_cast<int>(rank))[i].begin, true, 0, orders[rank][i]});
    }
  }

  // Of the output of `from`, or of the gradient of its input, to the part next to it.
  void add(int from, int to, int micro_batch) {
    const bool forward = to > from;
    const int sender = shape_.rank_of(from), receiver = shape_.rank_of(to);
    if (sender == receiver) return;
    const auto& made = forward ? run_.forward(from, micro_batch) : run_.backward(from, micro_batch);
    const auto& used = forward ? run_.forward(to, micro_batch) : run_.backward(to, micro_batch);
    if (made.end == 0 || used.end == 0) return;  // no rank has such a pass
    const double moment = Meeting(run_.of(sender), run_.of(receiver)).best(made.end, used.begin);
    ++transfers_;
    put(sender, moment,
        {forward ? Act::kSendActivation : Act::kSendGradient, micro_batch, shape_.chunk_of(from)});
    put(receiver, moment,
        {forward ? Act::kReceiveActivation : Act::kReceiveGradient, micro_batch, shape_.chunk_of(to)});
  }

  Orders orders() {
    Orders orders;
    for (std::vector<Placed>& placed : ranks_) {
      std::ranges::stable_sort(placed,
                               [](const Placed& a, const Placed& b) { return a.place() < b.place(); });
      std::vector<Action>& order = orders.emplace_back();
      for (const Placed& each : placed) order.push_back(each.action);
    }
    return orders;
  }

 private:
  void put(int rank, double moment, const Action& action) {
    ranks_[static_cast<size_t>(rank)].push_back({moment, false, transfers_, action});
  }

  const PipelineShape& shape_;
  const FreeRun run_;
  std::vector<std::vector<Placed>> ranks_;
  int transfers_ = 0;
};

}  // namespace

std::vector<std::vector<Action>> with_transfers(const PipelineShape& shape, const Orders& passes,
                                                const PartCosts& costs) {
  Placement placement(shape, passes, costs);
  for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
    for (int part = 0; part + 1 < shape.parts(); ++part) {
      placement.add(part, part + 1, micro_batch);
      placement.add(part + 1, part, micro_batch);
    }
  return placement.orders();
}

}  // namespace temper::parallel
