#include "recipes/setup/bound_kernels.h"

#include "base/files.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"
#include "recipes/parts/run_options.h"
#include "recipes/plans/rehearsal.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/setup/run_setup.h"

namespace temper::recipes {

KernelsOfRun bind_kernels_of_run(const RunConfig& config, const std::string& hardware) {
  check_recipe(config);
  check_adapters(config);
  const RunSetup setup(config, hardware);
  const ops::Preferences preferred = preferred_kernels(config, setup.facts);
  rehearse(config, {setup.model_config, setup.facts, preferred});
  return {models::bind_kernels(setup.model_config, join_path(config.model.path, "config.json"),
                               build_options(config, setup.facts, preferred)),
          setup.facts};
}

}  // namespace temper::recipes
