#include "recipes/commands/plan_layouts.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "models/folder_config.h"
#include "models/model.h"
#include "recipes/costs/known_machines.h"
#include "recipes/costs/times_file.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"
#include "recipes/learner/learner_plan.h"
#include "recipes/loop/learners.h"
#include "recipes/loop/train.h"
#include "recipes/plans/plan.h"
#include "recipes/plans/run_kernels.h"

namespace temper::recipes {
namespace {

Machine machine_of_plan(const RunConfig& config, const PlanOptions& options) {
  if (options.times.empty())
    return options.hardware.empty() ? machine_of(detect_hardware(config.device), config.model.dtype)
                                    : known_machine(options.hardware);
  Machine measured = read_times(options.times);
  if (!options.hardware.empty())
    if (const std::string name = known_machine(options.hardware).facts.name; name != measured.facts.name)
      fail("[--times] {} was measured on '{}', and --hardware {} is '{}'; leave one of them out",
           options.times, measured.facts.name, options.hardware, name);
  return measured;
}

PlannedMachine planned_machine(const RunConfig& config, const PlanOptions& options) {
  PlannedMachine planned{machine_of_plan(config, options)};
  Machine& machine = planned.machine;
  if (machine.dtype != config.model.dtype)
    fail(
        "[model.dtype] is {}, but the times of {} are those of {}; set model.dtype to it, or measure others "
        "with temper plan --measure FILE --dtype {}",
        to_string(config.model.dtype), options.times.empty() ? machine.facts.name : options.times,
        to_string(machine.dtype), to_string(config.model.dtype));
  planned.ranks_of_host = options.ranks_of_host > 0 ? options.ranks_of_host
                          : machine.shares_cores    ? options.ranks
                                                    : machine.devices_of_host;
  planned.ranks_of_host = std::min(planned.ranks_of_host, options.ranks);
  return planned;
}

int64_t limit_of(const RunConfig& config, const PlannedMachine& planned) {
  if (config.memory_limit_mib > 0) return config.memory_limit_mib << 20;
  const HardwareFacts& facts = planned.machine.facts;
  return planned.machine.shares_cores ? facts.memory_bytes / planned.ranks_of_host : facts.memory_bytes;
}

// Rows are read on the processor, by one rank.
std::vector<Sample> samples_of(RunConfig config) {
  const auto has_rows = [](const RunConfig& run) { return !run.data.train.empty(); };
  bool any = has_rows(config);
  for (const AdapterConfig& adapter : config.adapters) any = any || has_rows(run_of_adapter(config, adapter));
  if (!any) return {};
  config.device = hardware::kCpu;
  config.parallel = {};
  config.plugins = {};
  config.memory_limit_mib = 0;
  config.model.ops_implementation = {};
  const RunSetup setup(config);
  std::vector<Sample> samples;
  const Learners learners(setup);
  for (const auto& learner : learners) samples.push_back(sample_rows(learner->inputs()));
  return samples;
}

void check_planned(const RunConfig& config) {
  check_run(config);
  if (recipe_of(config).rollouts != nullptr)
    fail(
        "[recipe] {} learns from the model's own answers, whose time is not planned; use temper train "
        "--dry-run, which measures it",
        config.recipe);
}

struct Candidate {
  RunLayout layout;
  LayoutBound bound;
};

class Search {
 public:
  Search(const RunConfig& config, const Setting& setting, const PlanOptions& options, LayoutPlan& plan)
      : config_(config),
        setting_(setting),
        top_(static_cast<size_t>(options.top)),
        most_(options.rehearsals),
        bounds_(config, setting, plan.machine),
        plan_(plan) {
    plan_.update = bounds_.update();
    plan_.elements = bounds_.elements();
  }

  void run() {
    std::vector<Candidate> candidates = all();
    std::ranges::stable_sort(candidates, {}, [](const Candidate& each) { return each.bound.expected; });
    for (const Candidate& candidate : candidates) {
      if (plan_.best.size() == top_ && candidate.bound.seconds >= plan_.best.back().seconds)
        ++plan_.slower;
      else if (plan_.fits + plan_.too_large >= most_)
        ++plan_.left;
      else
        take(candidate.layout);
    }
  }

 private:
  std::vector<Candidate> all() {
    const layers::DecoderConfig model = models::configure(
        setting_.model, join_path(config_.model.path, "config.json"), models::Purpose::kTraining);
    const RunLayouts layouts =
        layouts_of(plan_.ranks, model, config_, static_cast<int64_t>(bounds_.update().rows));
    plan_.refused = layouts.refused;
    plan_.why_refused = layouts.why_refused;
    plan_.idle = layouts.idle;
    plan_.possible = std::ssize(layouts.possible);
    std::vector<Candidate> candidates;
    for (const RunLayout& layout : layouts.possible) {
      const LayoutBound bound = bounds_.of(layout);
      if (bound.memory <= plan_.limit) {
        candidates.push_back({layout, bound});
        continue;
      }
      ++plan_.cannot_fit;
      if (!plan_.least_state || bound.memory < plan_.least_state_bytes) {
        plan_.least_state = layout;
        plan_.least_state_bytes = bound.memory;
      }
    }
    return candidates;
  }

  void take(const RunLayout& layout) {
    LayoutCost cost;
    try {
      cost = cost_of(config_, setting_, plan_.machine, layout);
    } catch (const Error& error) {
      if (plan_.why_refused.empty()) plan_.why_refused = error.what();
      ++plan_.refused;  // something of the run is not for this layout
      --plan_.possible;
      return;
    }
    if (cost.memory > plan_.limit) {
      ++plan_.too_large;
      if (!plan_.smallest_too_large || cost.memory < plan_.smallest_too_large->memory)
        plan_.smallest_too_large = cost;
      return;
    }
    ++plan_.fits;
    plan_.best.insert(std::ranges::upper_bound(plan_.best, cost.seconds, {}, &LayoutCost::seconds), cost);
    if (plan_.best.size() > top_) plan_.best.pop_back();
  }

  const RunConfig& config_;
  const Setting& setting_;
  const size_t top_;
  const int64_t most_;
  const LayoutBounds bounds_;
  LayoutPlan& plan_;
};

[[noreturn]] void fail_to_fit(const RunConfig& config, Setting setting, const LayoutPlan& plan) {
  if (plan.possible == 0)
    fail(
        "[plan] no layout of {} ranks is possible: {} are refused{}, and {} leave ranks without rows, as an "
        "update has {:.0f}; change these keys, train.rows_per_step or the number of ranks",
        plan.ranks, plan.refused, plan.why_refused.empty() ? "" : " (" + plan.why_refused + ")", plan.idle,
        plan.update.rows);
  if (!plan.smallest_too_large)
    fail_resources(
        "[memory] no layout of {} ranks fits: weights, gradients and states alone take {} of {} in the one "
        "that needs least ({}); use more ranks, or devices with more memory",
        plan.ranks, format_bytes(plan.least_state_bytes), format_bytes(plan.limit),
        to_string(*plan.least_state));
  const LayoutCost& least = *plan.smallest_too_large;
  setting.mesh = least.layout.mesh;
  const std::string ways = what_would_fit(with_layout(config, least.layout), setting, plan.limit);
  fail_resources("[memory] no layout of {} ranks fits: the one that needs least ({}) takes {} of {}; {}",
                 plan.ranks, to_string(least.layout), format_bytes(least.memory), format_bytes(plan.limit),
                 ways.empty() ? "use more ranks, or devices with more memory" : "with it this fits: " + ways);
}

}  // namespace

LayoutPlan plan_layouts(const RunConfig& config, const PlanOptions& options) {
  check_planned(config);
  LayoutPlan plan;
  plan.ranks = options.ranks;
  plan.machine = planned_machine(config, options);
  plan.limit = limit_of(config, plan.machine);
  const HardwareFacts& facts = plan.machine.machine.facts;
  Setting setting{.model = models::config_of_folder(config.model.path),
                  .facts = facts,
                  .preferred = preferred_kernels(config, facts),
                  .samples = samples_of(config)};
  plan.has_rows = !setting.samples.empty() && !setting.samples.front().rows.empty();
  Search(config, setting, options, plan).run();
  if (plan.best.empty()) fail_to_fit(config, setting, plan);
  return plan;
}

}  // namespace temper::recipes
