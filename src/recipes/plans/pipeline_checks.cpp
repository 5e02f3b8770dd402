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

// Other models in memory are divided like the first one.
void check_layers_of(const std::string& folder, std::string_view name, const RunConfig& config) {
  if (folder == config.model.path) return;
  const layers::DecoderConfig other =
      models::configure(models::config_of_folder(folder), join_path(folder, "config.json"));
  if (const std::string reason = too_few_layers(other, config.parallel); !reason.empty())
    fail("{} (of '{}', the {} of recipe {}); set fewer stages", reason, folder, name, config.recipe);
}

// What is computed with a copy of the weights that all ranks have without stages.
void check_copied(const RunConfig& config) {
  const bool rolls = recipe_of(config).rollouts != nullptr;
  if (!rolls && config.eval.exact_match == 0) return;
  const bool quantizes = config.quantize.to_options().any();
  if (!config.model.base_dtype && !quantizes) return;
  fail(
      "[parallel.pipeline] is {}, but {} with a copy of the weights that has no stages, and {} cannot be "
      "copied; set {}parallel.pipeline to 1",
      config.parallel.pipeline, rolls ? "answers are sampled" : "questions are answered",
      quantizes ? "quantizers" : fmt::format("weights in {} (model.base_dtype)", config.model.kept_in()),
      rolls ? "" : "eval.exact_match to 0, or ");
}

// What has no gradients of weight matrices that could be computed later.
void check_split_backward(const RunConfig& config) {
  constexpr const char* kBegin =
      "[parallel.pipeline_schedule] is zb_h1, which computes the gradients of weight matrices later";
  const std::optional<CriticSettings> critic = recipe_of(config).critic(config);
  if (!config.adapters.empty() || (critic && critic->lora))
    fail("{}, but adapters{} train narrow matrices, for which that saves no time; use 1f1b", kBegin,
         config.adapters.empty() ? " (grpo.critic.rank)" : "");
  if (config.parallel.shard_level == 3)
    fail(
        "{}, when parallel.shard_level: 3 has freed the matrices; set shard_level to 2, or the schedule to "
        "1f1b",
        kBegin);
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
  if (const std::string reason = recipe.refuses_stages(config); !reason.empty())
    fail("[parallel.pipeline] is {}, but recipe {} {}", stages, config.recipe, reason);
  if (const auto folder = recipe.second_model(config)) check_layers_of(*folder, "second model", config);
  if (const auto critic = recipe.critic(config)) check_layers_of(critic->folder, "critic", config);
  check_copied(config);
  const quantizers::QuantizeOptions quantize = config.quantize.to_options();
  if (quantize.any() && quantize.calibration != quantizers::CalibrationMethod::kMax)
    fail(
        "[parallel.pipeline] is {}, but quantize.calibration {} compares what all layers compute with and "
        "without rounding; set it to max, or parallel.pipeline to 1",
        stages, quantizers::name_of(quantize.calibration));
  if (config.parallel.schedule() == parallel::ScheduleKind::kZbH1) check_split_backward(config);
}

void check_schedule_keys(const ParallelConfig& config) {
  const int64_t chunks = config.pipeline_chunks;
  const bool is_auto = config.pipeline_schedule == PipelineSchedule::kAuto;
  const parallel::ScheduleKind kind = config.schedule();
  const bool is_interleaved = kind == parallel::ScheduleKind::kInterleaved;
  if (config.pipeline == 1 && chunks > 1)
    fail(
        "[parallel.pipeline_chunks] is {}, but it is about parts of the layers on each pipeline stage, and "
        "parallel.pipeline is 1; leave it out",
        chunks);
  if (config.pipeline == 1 && !is_auto)
    fail(
        "[parallel.pipeline_schedule] is {}, but it is about the passes of pipeline stages, and "
        "parallel.pipeline is 1; leave it out",
        to_string(kind));
  if (chunks > 1 && !is_interleaved)
    fail(
        "[parallel.pipeline_schedule] is {}, which has one part of the layers on each stage, but "
        "parallel.pipeline_chunks is {}; set the schedule to interleaved, or pipeline_chunks to 1",
        to_string(kind), chunks);
  if (chunks == 1 && is_interleaved)
    fail(
        "[parallel.pipeline_schedule] is interleaved, which needs several parts of the layers on each stage, "
        "but parallel.pipeline_chunks is 1; set pipeline_chunks to 2 or more, or the schedule to 1f1b");
}

layers::ModelRanks model_ranks(const parallel::MeshGroups& groups, const layers::DecoderConfig& model,
                               const RunConfig& config, Device device) {
  return parallel::with_parts(groups.model(), model, static_cast<int>(config.parallel.pipeline_chunks),
                              device);
}

}  // namespace temper::recipes
