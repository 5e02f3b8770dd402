#include "recipes/plans/layout_cost.h"

#include <algorithm>
#include <set>

#include "parallel/pipeline/pipeline_plan.h"
#include "recipes/costs/rank_clock.h"
#include "recipes/plans/update_size.h"

namespace temper::recipes {
namespace {

// What a stage's first rank was asked for.
struct StageTimes {
  explicit StageTimes(const PlannedMachine& machine) : clock(machine.machine, machine.ranks_of_host) {}

  int64_t passes() const { return std::ssize(clock.passes()) / 2; }

  RankClock clock;
  int64_t memory = 0;
};

// Every micro-batch but the last takes as long as the first: while the last one's backward pass runs,
// gradients are summed.
RankWork extended(const StageTimes& times, double passes) {
  const double more = passes - static_cast<double>(times.passes());
  RankWork all = times.clock.all();
  if (more > 0)
    for (size_t i = 0; i < 2; ++i) all = all.plus(times.clock.passes().at(i).work, more);
  return all;
}

class Pipeline {
 public:
  Pipeline(const RunConfig& config, const Setting& setting, const PlannedMachine& machine,
           const RunLayout& layout, int64_t passes)
      : config_(config), setting_(setting), machine_(machine), layout_(layout), passes_(passes) {
    for (const int stage : std::set<int>{0, layout.pipeline / 2, layout.pipeline - 1})
      stages_.emplace_back(stage, rehearsed(stage));
  }

  LayoutCost cost() const {
    const parallel::Schedule schedule = schedule_of(passes_);
    const parallel::Timeline timeline =
        parallel::simulate(schedule, costs(), parallel::waiting_of(!machine_.machine.shares_cores));
    LayoutCost cost{.layout = layout_};
    double outside = 0;  // of the passes
    for (const auto& [stage, times] : stages_) {
      const RankClock& clock = times.clock;
      const RankWork apart = clock.before_passes().plus(clock.update(), 1);
      const RankWork all =
          apart.plus(clock.all() - apart, static_cast<double>(passes_) / static_cast<double>(rehearsed_));
      outside = std::max(outside, apart.seconds);
      cost.memory = std::max(cost.memory, times.memory);
      cost.to_host = std::max(cost.to_host, all.to_host);
      cost.to_network = std::max(cost.to_network, all.to_network);
    }
    cost.seconds = timeline.end + outside;
    cost.bubble = timeline.bubble_share() * timeline.end / cost.seconds;
    return cost;
  }

 private:
  parallel::Schedule schedule_of(int64_t passes) const {
    return parallel::make_schedule(parallel::usual_kind(layout_.chunks),
                                   {layout_.pipeline, layout_.chunks, static_cast<int>(passes)});
  }

  StageTimes rehearsed(int stage) {
    StageTimes times(machine_);
    Setting setting = setting_;
    setting.stage = stage;
    setting.listener = &times.clock;
    times.memory = rehearse(config_, setting).total;
    rehearsed_ = times.passes() / layout_.chunks;
    return times;
  }

  // The stage that was rehearsed and is like this one.
  const StageTimes& times_of(int stage) const {
    const size_t place = stage == 0 ? 0 : stage == layout_.pipeline - 1 ? stages_.size() - 1 : 1;
    return stages_[std::min(place, stages_.size() - 1)].second;
  }

  // A chunk's passes, in the order of the schedule, on average.
  parallel::PartCosts part_costs(int stage, int chunk) const {
    const StageTimes& times = times_of(stage);
    double forward = 0, backward = 0;
    auto pass = times.clock.passes().begin();
    const int like = stage == 0 || stage == layout_.pipeline - 1 ? stage : layout_.pipeline / 2;
    const parallel::Schedule schedule = schedule_of(rehearsed_);
    for (const parallel::Action& action : schedule.ranks[static_cast<size_t>(like)]) {
      if (parallel::is_transfer(action.act)) continue;
      if (action.chunk == chunk) (pass->is_forward ? forward : backward) += pass->work.seconds;
      ++pass;
    }
    const auto count = static_cast<double>(rehearsed_);
    return {forward / count, backward / (2 * count), backward / (2 * count)};
  }

  parallel::PipelineCosts costs() const {
    parallel::PipelineCosts costs;
    const parallel::PipelineShape shape{layout_.pipeline, layout_.chunks, 1};
    for (int part = 0; part < shape.parts(); ++part)
      costs.parts.push_back(part_costs(shape.rank_of(part), shape.chunk_of(part)));
    for (const auto& [stage, times] : stages_)
      costs.transfer = std::max(costs.transfer, times.clock.seconds_of_transfer());
    return costs;
  }

  const RunConfig& config_;
  const Setting& setting_;
  const PlannedMachine& machine_;
  const RunLayout& layout_;
  const int64_t passes_;
  int64_t rehearsed_ = 1;
  std::vector<std::pair<int, StageTimes>> stages_;  // by stage
};

LayoutCost cost_of_one_stage(const RunConfig& config, Setting setting, const PlannedMachine& machine,
                             const RunLayout& layout, double more_passes) {
  StageTimes times(machine);
  setting.listener = &times.clock;
  const int64_t memory = rehearse(config, setting).total;
  const RankWork work = extended(times, static_cast<double>(times.passes()) * more_passes);
  return {.layout = layout,
          .memory = memory,
          .seconds = work.seconds,
          .waiting = work.waiting / work.seconds,
          .to_host = work.to_host,
          .to_network = work.to_network};
}

Source source_of(const Machine& machine, const LayoutCost& cost) {
  const bool measured = machine.ops_source == Source::kMeasured &&
                        (cost.to_host == 0 || machine.host.source == Source::kMeasured) &&
                        (cost.to_network == 0 || machine.network.source == Source::kMeasured);
  return measured ? Source::kMeasured : Source::kComputed;
}

}  // namespace

LayoutCost cost_of(const RunConfig& given, const Setting& given_setting, const PlannedMachine& machine,
                   const RunLayout& layout) {
  const RunConfig config = with_layout(given, layout);
  Setting setting = given_setting;
  setting.mesh = layout.mesh;
  setting.most_passes = kPlannedPasses;
  const PassCounts passes = passes_of_update(config, setting, layout.mesh.row_ranks());
  const double more = static_cast<double>(passes.all) / static_cast<double>(passes.rehearsed);
  LayoutCost cost = layout.pipeline > 1 ? Pipeline(config, setting, machine, layout, passes.all).cost()
                                        : cost_of_one_stage(config, setting, machine, layout, more);
  cost.source = source_of(machine.machine, cost);
  return cost;
}

}  // namespace temper::recipes
