#include "parallel/pipeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace temper::parallel {
namespace {

// Both sides of a transfer: whether it is of activations, the micro-batch, and the lower of its parts.
using TransferKey = std::tuple<bool, int, int>;

TransferKey key_of(const PipelineShape& shape, int rank, const Action& action) {
  const bool activation = action.act == Act::kSendActivation || action.act == Act::kReceiveActivation;
  const int part = shape.part(rank, action.chunk);
  const bool is_upper = action.act == Act::kReceiveActivation || action.act == Act::kSendGradient;
  return {activation, action.micro_batch, is_upper ? part - 1 : part};
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, const PipelineCosts& costs, Waiting waiting)
      : schedule_(schedule), costs_(costs), waiting_(waiting), ranks_(schedule.ranks.size()) {
    invariant(std::ssize(costs.parts) == schedule.shape.parts(), "a pipeline has costs of each of its parts");
    for (const auto& actions : schedule.ranks) timeline_.ranks.emplace_back(actions.size());
  }

  Timeline run() {
    for (bool any = true; any;) {
      any = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        while (compute(rank) || transfer(rank)) any = true;
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      invariant(next(rank, true) == nullptr && next(rank, false) == nullptr,
                "only a schedule without deadlock has a timeline");
    return std::move(timeline_);
  }

 private:
  // A rank's passes and its transfers, each in the order of its list.
  struct Rank {
    size_t pass = 0, transfer = 0;          // the next ones, by their places in the list
    double pass_end = 0, transfer_end = 0;  // of the last ones
    std::map<std::pair<Act, int>, double>
        there;  // what has come: from the transfer, by chunk and micro-batch
  };

  const Action* next(size_t rank, bool is_pass) {
    const std::vector<Action>& actions = schedule_.ranks[rank];
    size_t& at = is_pass ? ranks_[rank].pass : ranks_[rank].transfer;
    while (at < actions.size() && is_transfer(actions[at].act) == is_pass) ++at;
    return at < actions.size() ? &actions[at] : nullptr;
  }
  void set(size_t rank, size_t at, double begin, double end) {
    timeline_.ranks[rank][at] = {begin, end};
    timeline_.end = std::max(timeline_.end, end);
  }

  bool compute(size_t rank) {
    Rank& own = ranks_[rank];
    const Action* const action = next(rank, true);
    if (action == nullptr) return false;
    double begin = own.pass_end;
    if (waiting_ == Waiting::kForAllTransfers) {
      if (next(rank, false) != nullptr && own.transfer < own.pass) return false;
      begin = std::max(begin, own.transfer_end);
    } else if (const auto needed = needed_by(rank, *action)) {
      const auto found = own.there.find(*needed);
      if (found == own.there.end()) return false;
      begin = std::max(begin, found->second);
    }
    const int part = schedule_.shape.part(static_cast<int>(rank), action->chunk);
    const double length = costs_.parts[static_cast<size_t>(part)].of(action->act);
    timeline_.computing += length;
    own.pass_end = begin + length;
    set(rank, own.pass++, begin, own.pass_end);
    return true;
  }

  // The transfer that brings what a pass reads, if one does.
  std::optional<std::pair<Act, int>> needed_by(size_t rank, const Action& action) const {
    const PipelineShape& shape = schedule_.shape;
    const int part = shape.part(static_cast<int>(rank), action.chunk);
    const bool forward = action.act == Act::kForward;
    if (shape.stages == 1 || action.act == Act::kBackwardWeight || part == (forward ? 0 : shape.parts() - 1))
      return std::nullopt;
    return std::pair(forward ? Act::kReceiveActivation : Act::kReceiveGradient,
                     action.chunk * shape.micro_batches + action.micro_batch);
  }

  // The first of the two waits for the other one. Both have computed what comes before it.
  bool transfer(size_t rank) {
    const Action* const action = next(rank, false);
    if (action == nullptr) return false;
    Rank& own = ranks_[rank];
    if (next(rank, true) != nullptr && own.pass < own.transfer) return false;
    const auto [place, is_first] =
        first_.try_emplace(key_of(schedule_.shape, static_cast<int>(rank), *action), rank);
    if (is_first || place->second == rank) return false;
    const size_t other = place->second;
    first_.erase(place);
    double begin = 0;
    for (const size_t each : {rank, other})
      begin = std::max({begin, ends_before(each), ranks_[each].transfer_end});
    for (const size_t each : {rank, other}) {
      const Action& its = *next(each, false);
      Rank& of = ranks_[each];
      of.transfer_end = begin + costs_.transfer;
      of.there[{its.act, its.chunk * schedule_.shape.micro_batches + its.micro_batch}] = of.transfer_end;
      set(each, of.transfer++, begin, of.transfer_end);
    }
    return true;
  }
  // Of the pass before a rank's next transfer.
  double ends_before(size_t rank) const {
    const size_t transfer = ranks_[rank].transfer;
    for (size_t at = transfer; at-- > 0;)
      if (!is_transfer(schedule_.ranks[rank][at].act)) return timeline_.ranks[rank][at].end;
    return 0;
  }

  const Schedule& schedule_;
  const PipelineCosts& costs_;
  const Waiting waiting_;
  std::vector<Rank> ranks_;
  std::map<TransferKey, size_t> first_;  // the rank that has come to a transfer, alone so far
  Timeline timeline_;
};

std::string label_of(const Action& action, int chunks) {
  constexpr std::string_view kLetters = "FBbw";
  std::string label = fmt::format("{}{}", kLetters[static_cast<size_t>(action.act)], action.micro_batch);
  if (chunks > 1) label += static_cast<char>('a' + action.chunk % 26);
  return label;
}

// A rank's time in cells of one unit each.
class Line {
 public:
  Line(double unit, size_t cell_width) : unit_(unit), cell_width_(cell_width) {}

  void add(const Timeline::Interval& interval, const std::string& label) {
    const auto cell = [&](double moment) { return static_cast<size_t>(std::llround(moment / unit_)); };
    while (cells_ < cell(interval.begin)) put(".");
    const size_t last = std::max(cell(interval.end), cells_ + 1);
    put(label);
    while (cells_ < last) put("-");
  }
  const std::string& text() const { return text_; }

 private:
  void put(const std::string& text) {
    text_ += text + std::string(cell_width_ - text.size(), ' ');
    ++cells_;
  }

  const double unit_;
  const size_t cell_width_;
  std::string text_;
  size_t cells_ = 0;
};

}  // namespace

PipelineCosts equal_costs(const PipelineShape& shape, const PartCosts& each) {
  return {std::vector<PartCosts>(static_cast<size_t>(shape.parts()), each), 0};
}

Timeline simulate(const Schedule& schedule, const PipelineCosts& costs, Waiting waiting) {
  return Simulation(schedule, costs, waiting).run();
}

std::string draw(const Schedule& schedule, const Timeline& timeline, size_t width) {
  const PipelineShape& shape = schedule.shape;
  double unit = std::numeric_limits<double>::infinity();
  size_t longest = 0;
  const auto for_passes = [&](size_t rank, const auto& f) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i)
      if (const Action& action = schedule.ranks[rank][i]; !is_transfer(action.act))
        f(timeline.ranks[rank][i], label_of(action, shape.chunks));
  };
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for_passes(rank, [&](const Timeline::Interval& interval, const std::string& label) {
      if (interval.end > interval.begin) unit = std::min(unit, interval.end - interval.begin);
      longest = std::max(longest, label.size());
    });
  std::string text = fmt::format("{}: {} stages{}, {} micro-batches; {:.1f} % of the ranks' time is idle\n",
                                 to_string(schedule.kind), shape.stages,
                                 shape.chunks > 1 ? fmt::format(" of {} chunks", shape.chunks) : "",
                                 shape.micro_batches, 100 * timeline.bubble_share());
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    Line line(unit, longest + 1);
    for_passes(rank, [&](const auto& interval, const std::string& label) { line.add(interval, label); });
    const std::string begin = fmt::format("rank {:<{}}  ", rank, shape.stages > 10 ? 2 : 1),
                      end = fmt::format("(at most {} activations)", schedule.most_activations[rank]);
    std::string passes = line.text();
    if (const size_t room = width - std::min(width, begin.size() + end.size()); passes.size() > room)
      passes = passes.substr(0, room - std::min<size_t>(room, 4)) + "... ";
    text += begin + passes + end + "\n";
  }
  return text;
}

}  // namespace temper::parallel
