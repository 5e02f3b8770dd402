#include "parallel/pipeline/schedule_check.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace temper::parallel {
namespace {

template <class... Args>
[[noreturn]] void fail_schedule(fmt::format_string<Args...> text, Args&&... args) {
  throw Error("[pipeline] " + fmt::format(text, std::forward<Args>(args)...), ErrorKind::kDefect);
}

// What has happened to a micro-batch in a part.
struct Progress {
  bool has_input = false, has_gradient = false;
  std::array<bool, 8> done{};  // by Act

  bool& of(Act act) { return done[static_cast<size_t>(act)]; }
  bool has_input_gradient() { return of(Act::kBackward) || of(Act::kBackwardInput); }
};

class Run {
 public:
  explicit Run(const Schedule& schedule)
      : schedule_(schedule),
        shape_(schedule.shape),
        progress_(static_cast<size_t>(shape_.parts() * shape_.micro_batches)),
        next_(schedule.ranks.size()),
        held_(next_.size()),
        peaks_(next_.size()) {
    if (std::ssize(schedule.ranks) != shape_.stages || std::ssize(schedule.most_activations) != shape_.stages)
      fail_schedule("the schedule has {} ranks, expected {}", schedule.ranks.size(), shape_.stages);
    for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
      at(0, micro_batch).has_input = true;
      at(shape_.parts() - 1, micro_batch).has_gradient = true;
    }
  }

  std::vector<RankPeak> run() {
    while (advance())
      ;
    if (!is_done()) fail_schedule("the ranks wait for each other: {}", waiting());
    check_complete();
    return peaks_;
  }

 private:
  Progress& at(int part, int micro_batch) {
    return progress_[static_cast<size_t>(part * shape_.micro_batches + micro_batch)];
  }
  const Action* next(int rank) const {
    const auto& actions = schedule_.ranks[static_cast<size_t>(rank)];
    const size_t at = next_[static_cast<size_t>(rank)];
    return at < actions.size() ? &actions[at] : nullptr;
  }
  bool is_done() const {
    for (int rank = 0; rank < shape_.stages; ++rank)
      if (next(rank) != nullptr) return false;
    return true;
  }
  int part_of(int rank, const Action& action) const {
    if (action.chunk < 0 || action.chunk >= shape_.chunks || action.micro_batch < 0 ||
        action.micro_batch >= shape_.micro_batches)
      fail_schedule("rank {}: {} is not one of {} chunks and {} micro-batches", rank, to_string(action),
                    shape_.chunks, shape_.micro_batches);
    return shape_.part(rank, action.chunk);
  }

  // Of a transfer: the part of the other side, and what that does.
  struct Other {
    int rank = 0;
    Action action;
  };
  Other other_side(int rank, const Action& action) const {
    const bool later = action.act == Act::kSendActivation || action.act == Act::kReceiveGradient;
    const int part = part_of(rank, action) + (later ? 1 : -1);
    if (part < 0 || part >= shape_.parts())
      fail_schedule("rank {}: {} has no part on the other side", rank, to_string(action));
    constexpr std::array<Act, 4> kOpposite{Act::kReceiveActivation, Act::kSendActivation,
                                           Act::kReceiveGradient, Act::kSendGradient};
    const auto which = static_cast<size_t>(action.act) - static_cast<size_t>(Act::kSendActivation);
    return {shape_.rank_of(part), {kOpposite[which], action.micro_batch, shape_.chunk_of(part)}};
  }

  bool advance() {
    bool any = false;
    for (int rank = 0; rank < shape_.stages; ++rank)
      while (const Action* const action = next(rank)) {
        if (is_transfer(action->act) ? !transfer(rank, *action) : !compute(rank, *action)) break;
        any = true;
      }
    return any;
  }

  void step(int rank, const Action& action) {
    bool& done = at(part_of(rank, action), action.micro_batch).of(action.act);
    if (done) fail_schedule("rank {}: {} comes twice", rank, to_string(action));
    done = true;
    ++next_[static_cast<size_t>(rank)];
  }

  // Without waiting: what is missing now does not come later, as the rank receives it by itself.
  bool compute(int rank, const Action& action) {
    const int part = part_of(rank, action);
    Progress& own = at(part, action.micro_batch);
    const auto need = [&](bool there, const char* what) {
      if (!there) fail_schedule("rank {}: {} comes before {}", rank, to_string(action), what);
    };
    step(rank, action);
    RankPeak& held = held_[static_cast<size_t>(rank)];
    if (action.act == Act::kForward) {
      need(own.has_input, "its input is there");
      if (shape_.is_trained(part)) ++held.activations;
      if (part > 0) --held.received;
      give(rank, part, part + 1, action.micro_batch);
    } else if (action.act == Act::kBackwardWeight) {
      need(own.of(Act::kBackwardInput), "the backward of the input");
      --held.activations;
    } else {
      if (!shape_.is_trained(part))
        fail_schedule("rank {}: {} is of a part that needs no gradient", rank, to_string(action));
      need(own.of(Act::kForward), "its forward");
      need(own.has_gradient, "the gradient of its output is there");
      need(!(own.of(Act::kBackward) && own.of(Act::kBackwardInput)), "any other backward");
      if (part + 1 < shape_.parts()) --held.received;
      if (action.act == Act::kBackward) --held.activations;
      if (shape_.is_trained(part - 1)) give(rank, part, part - 1, action.micro_batch);
    }
    record(rank);
    return true;
  }

  // A rank's own next part has it at once.
  void give(int rank, int part, int to, int micro_batch) {
    if (to >= 0 && to < shape_.parts() && shape_.rank_of(to) == rank)
      arrive(rank, to, to > part, micro_batch);
  }
  void arrive(int rank, int part, bool input, int micro_batch) {
    Progress& progress = at(part, micro_batch);
    (input ? progress.has_input : progress.has_gradient) = true;
    ++held_[static_cast<size_t>(rank)].received;
    record(rank);
  }
  void record(int rank) {
    RankPeak& peak = peaks_[static_cast<size_t>(rank)];
    const RankPeak& held = held_[static_cast<size_t>(rank)];
    peak.activations = std::max(peak.activations, held.activations);
    peak.received = std::max(peak.received, held.received);
    if (const int most = schedule_.most_activations[static_cast<size_t>(rank)]; held.activations > most)
      fail_schedule("rank {} has the activations of {} forward passes; the schedule says at most {}", rank,
                    held.activations, most);
  }

  // Both sides at once, where both are there.
  bool transfer(int rank, const Action& action) {
    const Other other = other_side(rank, action);
    const Action* const theirs = next(other.rank);
    if (other.rank == rank || theirs == nullptr || !(*theirs == other.action)) return false;
    const bool sends = is_send(action.act);
    const int from = sends ? rank : other.rank, to = sends ? other.rank : rank;
    const Action sent = sends ? action : other.action, received = sends ? other.action : action;
    Progress& made = at(part_of(from, sent), sent.micro_batch);
    const bool input = sent.act == Act::kSendActivation;
    if (!(input ? made.of(Act::kForward) : made.has_input_gradient()))
      fail_schedule("rank {}: {} comes before it is computed", from, to_string(sent));
    step(from, sent);
    step(to, received);
    arrive(to, part_of(to, received), input, received.micro_batch);
    return true;
  }

  std::string waiting() const {
    std::vector<std::string> texts;
    for (int rank = 0; rank < shape_.stages; ++rank) {
      const Action* const action = next(rank);
      if (action == nullptr) {
        texts.push_back(fmt::format("rank {} is done", rank));
        continue;
      }
      const Other other = other_side(rank, *action);
      texts.push_back(fmt::format("rank {} is in {} and waits until rank {} is in {}", rank,
                                  to_string(*action), other.rank, to_string(other.action)));
    }
    return join(texts, "; ");
  }

  void check_complete() {
    for (int part = 0; part < shape_.parts(); ++part)
      for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
        Progress& own = at(part, micro_batch);
        std::optional<Act> missing;
        if (!own.of(Act::kForward)) missing = Act::kForward;
        if (!own.has_input_gradient() && shape_.is_trained(part)) missing = Act::kBackward;
        if (own.of(Act::kBackwardInput) && !own.of(Act::kBackwardWeight)) missing = Act::kBackwardWeight;
        if (missing)
          fail_schedule("rank {}: {} is missing", shape_.rank_of(part),
                        to_string(Action{*missing, micro_batch, shape_.chunk_of(part)}));
      }
  }

  const Schedule& schedule_;
  const PipelineShape& shape_;
  std::vector<Progress> progress_;  // by part and micro-batch
  std::vector<size_t> next_;        // by rank
  std::vector<RankPeak> held_, peaks_;
};

}  // namespace

std::vector<RankPeak> check_schedule(const Schedule& schedule) { return Run(schedule).run(); }

}  // namespace temper::parallel
