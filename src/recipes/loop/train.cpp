#include "recipes/loop/train.h"

#include "base/files.h"
#include "checkpoints/states/training_state.h"
#include "parallel/same_on_all_ranks.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"
#include "recipes/loop/dry_run.h"
#include "recipes/loop/evaluation.h"
#include "recipes/loop/training_loop.h"
#include "recipes/parts/exchange_plan.h"
#include "recipes/parts/output.h"
#include "recipes/parts/run_files.h"
#include "recipes/plans/mesh.h"
#include "recipes/plans/quantizer_report.h"

namespace temper::recipes {
namespace {

// Without the comments that mark the keys which were written.
std::string without_comments(std::string yaml) {
  constexpr std::string_view kComment = "  # written";
  for (size_t at; (at = yaml.find(kComment)) != std::string::npos;) yaml.erase(at, kComment.size());
  return yaml;
}

// An adapter of a run that has started resumes from the run's own copy of the adapter that it started from.
RunConfig with_copied_sources(RunConfig config) {
  for (AdapterConfig& adapter : config.adapters) {
    const RunFiles files{run_of_adapter(config, adapter).output};
    if (!adapter.from.empty() && is_directory(files.from()) &&
        !checkpoints::list_states(files.states()).empty())
      adapter.begun_from = files.from();
  }
  return config;
}

}  // namespace

void check_run(const RunConfig& config) {
  check_output(config.output);
  check_recipe(config);
  check_evaluations(config);
  check_adapters(config);
  check_quantize(config);
  check_exchange(config);
}

void plan_run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
              int ranks) {
  RunConfig here = config;
  here.parallel = {};
  RunOptions planned = options;
  planned.planned = {mesh_of(config, ranks), config.parallel};
  train(here, resolved_yaml, planned);
}

void train(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
           collectives::Group& ranks) {
  check_run(config);
  if (options.dry_run && !ranks.is_alone()) {
    if (ranks.rank() == 0) plan_run(config, resolved_yaml, options, ranks.size());
    return;
  }
  if (options.dry_run) return dry_run(with_copied_sources(config), options, ranks);
  parallel::check_same_program(ranks);
  parallel::check_same_on_all_ranks(ranks, "configuration", without_comments(resolved_yaml));
  TrainingLoop(with_copied_sources(config), resolved_yaml, options, ranks).run();
}

}  // namespace temper::recipes
