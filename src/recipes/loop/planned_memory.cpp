#include "recipes/loop/planned_memory.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "recipes/learner/learner_plan.h"
#include "recipes/parts/exchange_plan.h"
#include "recipes/plans/mesh.h"
#include "recipes/plans/plan.h"
#include "recipes/plans/stage_report.h"
#include "recipes/setup/rollout_model.h"

namespace temper::recipes {
namespace {

void check_rollout_mesh(const RunSetup& setup, const RunConfig& config, const Mesh& mesh) {
  const Recipe& recipe = recipe_of(config);
  if (recipe.rollouts != nullptr)
    rollout_mesh(recipe.rollouts(config).degrees, mesh, setup.architecture, config);
}

// Rollouts get the memory that training leaves.
void size_cache(RunSetup& setup, const RunOptions& options, RunMemory& plan, int64_t limit) {
  const RolloutMemory& rollouts = *plan.rollouts;
  const int64_t requested = rollouts.wish.engine.cache_tokens;
  int64_t tokens = rollouts.cache_that_fits(limit, setup.facts.device);
  // Ranks that divide the model need room for the same requests.
  for (const int64_t other : setup.ranks.gather("tokens of caches", tokens)) tokens = std::min(tokens, other);
  setup.cache_tokens = tokens;
  plan.set_cache(tokens);
  if (options.explain_memory) print_answer(options, phases_table(plan.updates, rollouts, tokens));
  if (tokens == requested) return;
  log_info(
      fmt::format("rollouts: KV cache of {} tokens ({} requested), which is all that fits into {} together "
                  "with training",
                  tokens, requested, format_bytes(limit)));
}

}  // namespace

RunMemory plan_memory(RunSetup& setup, const Learners& learners, const RunOptions& options,
                      const ops::Preferences& preferred) {
  Setting setting{setup.model_config, setup.facts, preferred};
  setting.mesh = options.planned ? options.planned->mesh : setup.mesh;
  RunConfig config = setup.config;
  if (options.planned) config.parallel = options.planned->keys;
  check_mesh(setting.mesh, setup.architecture, config);
  check_rollout_mesh(setup, config, setting.mesh);
  setting.ranks_here = setup.ranks.on_machine().ranks;
  for (const auto& learner : learners) setting.samples.push_back(sample_rows(learner->inputs()));
  RunMemory plan = rehearse(config, setting);
  const int64_t limit = pool(setup.facts.device).limit();
  if (plan.rollouts) size_cache(setup, options, plan, limit);
  check_memory(config, setting, plan, limit);
  return plan;
}

void print_answer(const RunOptions& options, const std::string& text) {
  if (!options.dry_run) return log_info(text);
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void explain_memory(const RunSetup& setup, const RunOptions& options, const RunMemory& plan) {
  if (!options.explain_memory) return;
  // What a stage of a pipeline has in use is compared with its own plan; a dry run is no stage.
  const auto stage = static_cast<size_t>(setup.ranks.rank() / setup.mesh.size());
  const bool is_stage = !options.planned && !plan.stages.empty();
  const MemoryPlan& own = is_stage ? plan.stages[stage] : static_cast<const MemoryPlan&>(plan);
  print_answer(options, memory_table(setup.phases->usage(), setup.phases->peak_live(), &own));
  if (!plan.stages.empty()) print_answer(options, stages_table(plan.stages));
  if (const std::string chunk = describe_chunk(setup.config); !chunk.empty()) print_answer(options, chunk);
}

}  // namespace temper::recipes
