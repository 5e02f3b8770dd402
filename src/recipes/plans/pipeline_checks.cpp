#include "recipes/plans/pipeline_checks.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "models/folder_config.h"
#include "models/model.h"
#include "parallel/model_parts.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

// A second model is divided like the first one.
void check_second_layers(const RunConfig& config) {
  const std::optional<std::string> folder = recipe_of(config).second_model(config);
  if (!folder || *folder == config.model.path) return;
  const layers::DecoderConfig second =
      models::configure(models::config_of_folder(*folder), join_path(*folder, "config.json"));
  if (const std::string reason = too_few_layers(second, config.parallel); !reason.empty())
    fail("{} (of '{}', the second model of recipe {}); set fewer stages", reason, *folder, config.recipe);
}

}  // namespace

std::string too_few_layers(const layers::DecoderConfig& model, const ParallelConfig& parallel) {
  const int64_t stages = parallel.pipeline, chunks = parallel.pipeline_chunks;
  const auto layers = static_cast<int64_t>(model.blocks.size());
  if (stages == 1 || stages * chunks <= layers) return {};
  return fmt::format("[parallel.pipeline] is {}{}, but the model has {} layers, and each part needs one",
                     stages, chunks == 1 ? "" : fmt::format(", with {} parts of the layers each", chunks),
                     layers);
}

// What needs all layers at once, or more of other stages than they pass on.
void check_pipeline(const RunConfig& config) {
  const int64_t stages = config.parallel.pipeline;
  if (stages == 1) return;
  const Recipe& recipe = recipe_of(config);
  if (recipe.batches != nullptr)
    fail("[parallel.pipeline] is {}, but recipe {} needs all layers on every rank; set it to 1", stages,
         config.recipe);
  if (const std::string reason = recipe.refuses_stages(config); !reason.empty())
    fail("[parallel.pipeline] is {}, but recipe {} {}", stages, config.recipe, reason);
  check_second_layers(config);
  if (config.eval.exact_match > 0)
    fail(
        "[parallel.pipeline] is {}, but questions are answered by ranks that have all layers; set "
        "eval.exact_match to 0, or parallel.pipeline to 1",
        stages);
  if (config.quantize.to_options().any())
    fail("[parallel.pipeline] is {}, but quantizers need all layers on every rank; set it to 1", stages);
}

layers::ModelRanks model_ranks(const parallel::MeshGroups& groups, const layers::DecoderConfig& model,
                               const RunConfig& config) {
  return parallel::with_parts(groups.model(), model, static_cast<int>(config.parallel.pipeline_chunks));
}

}  // namespace temper::recipes
