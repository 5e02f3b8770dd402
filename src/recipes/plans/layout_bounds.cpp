#include "recipes/plans/layout_bounds.h"

#include <algorithm>

#include "base/files.h"
#include "models/model.h"
#include "recipes/costs/rank_clock.h"

namespace temper::recipes {

LayoutBounds::LayoutBounds(const RunConfig& config, const Setting& setting, const PlannedMachine& machine)
    : config_(config),
      setting_(setting),
      machine_(machine),
      model_(models::configure(setting.model, join_path(config.model.path, "config.json"),
                               models::Purpose::kTraining)),
      update_(size_of_update(config, setting)) {
  const WeightTable table = layers::decoder_weight_table(model_);
  for (const auto& spec : table.specs()) elements_ += static_cast<double>(spec.shape.numel());
  Setting alone = setting;
  RankClock clock(machine.machine, machine.machine.shares_cores ? machine.ranks_of_host : 1);
  alone.mesh = {};
  alone.most_passes = kPlannedPasses;
  alone.listener = &clock;
  rehearse(with_layout(config, {}), alone);
  const PassCounts passes = passes_of_update(config, setting, 1);
  for (const PassWork& pass : clock.passes()) passes_ += pass.work.seconds;
  passes_ *= static_cast<double>(passes.all) / static_cast<double>(passes.rehearsed);
}

// Gathered before mixers and channels and scattered behind them, in both passes.
double LayoutBounds::seconds_of_tensor_ranks(const RunLayout& layout) const {
  const Mesh& mesh = layout.mesh;
  if (mesh.tensor == 1) return 0;
  const double tokens = update_.tokens / layout.mesh.row_ranks() / mesh.context,
               layers = static_cast<double>(model_.blocks.size()) / layout.pipeline;
  const double bytes = 8 * layers * tokens * static_cast<double>(model_.hidden_size) *
                       static_cast<double>(size_of(config_.model.dtype)) * (mesh.tensor - 1) / mesh.tensor;
  const Machine& machine = machine_.machine;
  return bytes / (mesh.tensor > machine_.ranks_of_host
                      ? machine.network.bytes_per_second * machine_.ranks_of_host
                      : machine.host.bytes_per_second);
}

// Summed once and sent once; with level 2 summed in each pass, with level 3 also gathered twice in each.
double LayoutBounds::seconds_of_parameters(const RunLayout& layout, int64_t passes) const {
  const Mesh& mesh = layout.mesh;
  const int ranks = mesh.size() / mesh.tensor;
  if (ranks == 1) return 0;
  const double bytes = elements_ / (mesh.tensor * mesh.expert * layout.pipeline) *
                       static_cast<double>(size_of(config_.model.dtype));
  const double here = std::clamp(machine_.ranks_of_host / mesh.tensor, 1, ranks);
  const Link& link = here < ranks ? machine_.machine.network : machine_.machine.host;
  const auto each = static_cast<double>(passes);
  const double sums = mesh.shard_level > 1 ? each : 1, gathers = mesh.shard_level == 3 ? 2 * each : 1;
  const double share = (ranks - (here < ranks ? here : 1)) / ranks;
  const double sent = bytes * (sums * share + gathers * (here < ranks ? 1 / here : share));
  return std::max(link.slowdown, 0.1) * sent / link.bytes_per_second;
}

double LayoutBounds::bytes_of_state(const RunLayout& layout) const {
  const Mesh& mesh = layout.mesh;
  const double own = elements_ / (mesh.tensor * mesh.expert * layout.pipeline),
               sharing = mesh.shard * mesh.context * mesh.expert;
  const auto sizes = [](DType dtype) { return static_cast<double>(size_of(dtype)); };
  const double weights = mesh.shard_level == 3 ? own / sharing : own;
  if (!config_.adapters.empty())
    return weights * (config_.model.base_dtype ? 0.5 : sizes(config_.model.dtype));
  const bool masters = config_.train.master_weights && config_.model.dtype != DType::kF32;
  return weights * sizes(config_.model.dtype) +
         (mesh.shard_level > 1 ? own / sharing : own) * sizes(config_.train.gradients) +
         own / sharing * (2 * sizes(config_.train.optimizer.moments) + (masters ? 4 : 0));
}

LayoutBound LayoutBounds::of(const RunLayout& layout) const {
  const PassCounts passes = passes_of_update(with_layout(config_, layout), setting_, layout.mesh.row_ranks());
  const double idle = static_cast<double>(layout.pipeline - 1) /
                      static_cast<double>(layout.chunks * std::max<int64_t>(1, passes.all));
  const double computing = passes_ / layout.ranks() + seconds_of_tensor_ranks(layout);
  const double seconds = computing * (1 + idle);
  return {seconds, seconds + seconds_of_parameters(layout, passes.all),
          static_cast<int64_t>(bytes_of_state(layout))};
}

}  // namespace temper::recipes
