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

// What has no gradients of weight matrices that could be computed later.
void check_split_backward(const RunConfig& config) {
  constexpr const char* kBegin =
      "[parallel.pipeline_schedule] is zb_h1, which computes the gradients of weight matrices later";
  if (!config.adapters.empty())
    fail("{}, but adapters train narrow matrices, for which that saves no time; use 1f1b", kBegin);
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
  if (recipe.batches != nullptr)
    fail("[parallel.pipeline] is {}, but recipe {} needs all layers on every rank; set it to 1", stages,
         config.recipe);
  if (const std::string reason = recipe.refuses_stages(config); !reason.empty())
    fail("[parallel.pipeline] is {}, but recipe {} {}", stages, config.recipe, reason);
  check_second_layers(config);
  const quantizers::QuantizeOptions quantize = config.quantize.to_options();
  if (config.eval.exact_match > 0 && config.model.base_dtype)
    fail(
        "[parallel.pipeline] is {}, but questions are answered with a copy of the weights that has no "
        "stages, and weights in {} (model.base_dtype) cannot be copied; set eval.exact_match to 0, or "
        "parallel.pipeline to 1",
        stages, config.model.kept_in());
  if (config.eval.exact_match > 0 && quantize.any())
    fail(
        "[parallel.pipeline] is {}, but questions are answered with a copy of the weights that has no "
        "stages, and quantizers cannot be copied; set eval.exact_match to 0, or parallel.pipeline to 1",
        stages);
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
