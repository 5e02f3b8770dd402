#include "recipes/plans/pipeline_checks.h"

#include <algorithm>

#include "base/error.h"
#include "parallel/model_parts.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

bool is_balanced(const layers::DecoderConfig& model, const RunConfig& config) {
  const bool mixture = std::any_of(model.blocks.begin(), model.blocks.end(), [](const layers::Block& block) {
    return block.channel->routing() != nullptr;
  });
  return mixture && config.train.router.balance_loss.value_or(model.balance_factor) > 0;
}

// What needs all layers at once, or more of other stages than they pass on.
void check_wishes(const layers::DecoderConfig& model, const RunConfig& config) {
  const Recipe& recipe = recipe_of(config);
  const int64_t stages = config.parallel.pipeline;
  if (recipe.objective != nullptr || recipe.batches != nullptr)
    fail("[parallel.pipeline] is {}, but recipe {} needs all layers on every rank; set it to 1", stages,
         config.recipe);
  if (config.eval.exact_match > 0)
    fail(
        "[parallel.pipeline] is {}, but questions are answered by ranks that have all layers; set "
        "eval.exact_match to 0, or parallel.pipeline to 1",
        stages);
  if (config.quantize.to_options().any())
    fail("[parallel.pipeline] is {}, but quantizers need all layers on every rank; set it to 1", stages);
  if (is_balanced(model, config) && !config.adapters.empty())
    fail(
        "[parallel.pipeline] is {}, but the load balancing loss of adapters needs the routers of all layers; "
        "set train.router.balance_loss to 0, or parallel.pipeline to 1",
        stages);
  if (is_balanced(model, config) && !config.train.router.global_balance)
    fail(
        "[parallel.pipeline] is {}, but the load balancing loss of a micro-batch needs the routers of all "
        "layers; set train.router.balance_scope to global, or train.router.balance_loss to 0",
        stages);
  for (const AdapterConfig& adapter : config.adapters)
    if (model.tied_head && !adapter.modules_to_save.empty())
      fail(
          "[parallel.pipeline] is {}, but adapter '{}' trains modules in full (modules_to_save), which a "
          "model with a tied head cannot on several stages; leave them out, or set parallel.pipeline to 1",
          stages, adapter.name);
}

}  // namespace

void check_pipeline(const layers::DecoderConfig& model, const RunConfig& config) {
  const int64_t stages = config.parallel.pipeline, chunks = config.parallel.pipeline_chunks;
  if (stages == 1) return;
  const auto layers = static_cast<int64_t>(model.blocks.size());
  if (stages * chunks > layers)
    fail(
        "[parallel.pipeline] is {}{}, but the model has {} layers, and each part needs one; set "
        "parallel.pipeline to at most {}{}",
        stages, chunks == 1 ? "" : fmt::format(", with {} parts of the layers each", chunks), layers,
        std::max<int64_t>(1, layers / chunks),
        chunks > 1 && stages <= layers
            ? fmt::format(", or parallel.pipeline_chunks to at most {}", layers / stages)
            : "");
  check_wishes(model, config);
}

layers::ModelRanks model_ranks(const parallel::MeshGroups& groups, const layers::DecoderConfig& model,
                               const RunConfig& config) {
  return parallel::with_parts(groups.model(), model, static_cast<int>(config.parallel.pipeline_chunks));
}

}  // namespace temper::recipes
