#include "parallel/pipeline/schedule.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "parallel/pipeline/transfers.h"

namespace temper::parallel {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"1f1b", "interleaved", "zb_h1"};
constexpr std::array<std::string_view, 8> kActs{
    "forward",         "backward",           "backward of the input", "backward of the weights",
    "send activation", "receive activation", "send gradient",         "receive gradient"};

void check(ScheduleKind kind, const PipelineShape& shape) {
  if (shape.stages < 1 || shape.chunks < 1 || shape.micro_batches < 1)
    fail("[pipeline] {} stages of {} chunks and {} micro-batches; expected at least 1 of each", shape.stages,
         shape.chunks, shape.micro_batches);
  if (shape.first_trained < 0 || shape.first_trained >= shape.parts())
    fail("[pipeline] part {} is the first trained one of {}", shape.first_trained, shape.parts());
  if (kind != ScheduleKind::kInterleaved && shape.chunks > 1)
    fail("[pipeline] schedule {} has 1 chunk a rank, {} are asked for; choose interleaved, or 1 chunk",
         to_string(kind), shape.chunks);
}

// `ahead` forward passes, then a backward pass behind each further one, then the other backward passes.
std::vector<Action> one_forward_one_backward(const std::vector<Action>& forward,
                                             const std::vector<Action>& backward, size_t ahead) {
  std::vector<Action> order(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (size_t i = 0; i < backward.size(); ++i) {
    if (ahead + i < forward.size()) order.push_back(forward[ahead + i]);
    order.push_back(backward[i]);
  }
  return order;
}

// Groups of at least `stages` micro-batches, which pass one chunk after the other.
std::vector<int> groups_of(const PipelineShape& shape) {
  const int count = std::max(1, shape.micro_batches / shape.stages);
  std::vector<int> sizes;
  for (int i = 0; i < count; ++i)
    sizes.push_back(shape.micro_batches / count + (i < shape.micro_batches % count ? 1 : 0));
  return sizes;
}

// In the order in which every rank computes them.
std::vector<Action> all_passes(const PipelineShape& shape, Act act) {
  std::vector<Action> passes;
  int first = 0;
  for (const int size : groups_of(shape)) {
    for (int i = 0; i < shape.chunks; ++i) {
      const int chunk = act == Act::kForward ? i : shape.chunks - 1 - i;
      for (int k = 0; k < size; ++k) passes.push_back({act, first + k, chunk});
    }
    first += size;
  }
  return passes;
}

// Forward passes of a rank before its first backward pass. The first one that returns is of the last chunk:
// all chunks before it have been passed by a whole group, and the ranks behind this one are under way.
int passes_ahead(const PipelineShape& shape, int rank) {
  const int behind = shape.stages - rank - 1;
  const int ahead =
      shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * std::ranges::max(groups_of(shape));
  return std::min(ahead, shape.micro_batches * shape.chunks);
}

// Without the backward passes of parts that need none.
void leave_out_frozen(Schedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  for (int rank = 0; rank < shape.stages; ++rank) {
    const auto index = static_cast<size_t>(rank);
    const auto frozen = [&](const Action& action) {
      return !shape.is_trained(shape.part(rank, action.chunk));
    };
    std::erase_if(schedule.ranks[index],
                  [&](const Action& action) { return action.act != Act::kForward && frozen(action); });
    int held = 0, most = 0;
    for (const Action& action : schedule.ranks[index]) {
      if (action.act == Act::kForward && !frozen(action)) most = std::max(most, ++held);
      if (action.act == Act::kBackward || action.act == Act::kBackwardWeight) --held;
    }
    schedule.most_activations[index] = most;
  }
}

Schedule of_whole_backward(const PipelineShape& shape) {
  Schedule schedule{.shape = shape, .ranks = {}, .most_activations = {}};
  const std::vector<Action> forward = all_passes(shape, Act::kForward),
                            backward = all_passes(shape, Act::kBackward);
  for (int rank = 0; rank < shape.stages; ++rank) {
    const int ahead = passes_ahead(shape, rank);
    schedule.ranks.push_back(one_forward_one_backward(forward, backward, static_cast<size_t>(ahead)));
    schedule.most_activations.push_back(std::min(ahead + 1, shape.micro_batches * shape.chunks));
  }
  return schedule;
}

Schedule of_split_backward(const PipelineShape& shape) {
  Schedule schedule{.shape = shape, .ranks = {}, .most_activations = {}};
  for (int rank = 0; rank < shape.stages; ++rank) {
    std::vector<Action> order;
    int weights = 0;
    for (const Action& action :
         one_forward_one_backward(all_passes(shape, Act::kForward), all_passes(shape, Act::kBackwardInput),
                                  static_cast<size_t>(passes_ahead(shape, rank)))) {
      order.push_back(action);
      if (action.act == Act::kBackwardInput && action.micro_batch >= rank)
        order.push_back({Act::kBackwardWeight, weights++, 0});
    }
    while (weights < shape.micro_batches) order.push_back({Act::kBackwardWeight, weights++, 0});
    schedule.ranks.push_back(std::move(order));
    schedule.most_activations.push_back(std::min(shape.stages, shape.micro_batches));
  }
  return schedule;
}

}  // namespace

double PartCosts::of(Act act) const {
  switch (act) {
    case Act::kForward:
      return forward;
    case Act::kBackward:
      return backward_input + backward_weight;
    case Act::kBackwardInput:
      return backward_input;
    case Act::kBackwardWeight:
      return backward_weight;
    default:
      return 0;
  }
}

std::string_view to_string(ScheduleKind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::string to_string(const Action& action) {
  return fmt::format("{} of micro-batch {}, chunk {}", kActs[static_cast<size_t>(action.act)],
                     action.micro_batch, action.chunk);
}

Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape, const PartCosts& costs) {
  check(kind, shape);
  Schedule schedule = kind == ScheduleKind::kZbH1 ? of_split_backward(shape) : of_whole_backward(shape);
  schedule.kind = kind;
  if (shape.first_trained > 0) leave_out_frozen(schedule);
  schedule.ranks = with_transfers(shape, schedule.ranks, costs);
  return schedule;
}

}  // namespace temper::parallel
