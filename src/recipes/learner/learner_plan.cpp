#include "recipes/learner/learner_plan.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/states/training_state.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/learner/learner_folder.h"
#include "recipes/plans/plan_disk.h"

namespace temper::recipes {
namespace {

// Whether the data are those that a state continues in; recipes with batches of their own check them in
// training.
void check_rows_of(const Json& state, const Recipe& recipe, const data::Mixture& rows,
                   data::LoaderOptions options) {
  if (recipe.batches != nullptr) return;
  options.threads = 0;
  data::Loader(rows, options).restore(state.at("data"), state.find("stopped") != nullptr);
}

// A row that would stop the run stops this, with the same words.
void read_rows(const LearnerInputs& inputs, const UpdateSchedule& schedule, LearnerCheck& check) {
  constexpr double kSeconds = 60;
  const double end = seconds_now() + kSeconds;
  const Recipe& recipe = inputs.recipe();
  if (recipe.sample != nullptr) {
    check.batch = recipe.sample(inputs.config, inputs.data);
    check.read = recipe.read_rows(inputs.config, inputs.data, schedule.total_steps(), end);
    return;
  }
  data::LoaderOptions options = loader_options(inputs.config);
  options.threads = 0;
  data::Loader loader(inputs.data.train, options);
  check.batch = *loader.next();
  int64_t epoch = check.batch.epoch;
  for (int64_t update = 1; update < schedule.total_steps() && epoch == 0 && check.read.all; ++update) {
    epoch = loader.next()->epoch;
    check.read.all = seconds_now() < end;
  }
  check.read.rows = std::min(loader.counts().rows, inputs.data.train.size());
  if (inputs.data.eval) read_all(*inputs.data.eval, inputs.config);
}

}  // namespace

Sample sample_rows(const LearnerInputs& inputs) {
  constexpr int64_t kRows = 8;
  data::LoaderOptions options = loader_options(inputs.config);
  options.threads = 0;
  options.pack_window = options.rows_per_step = kRows;
  options.tokens_per_step = 0;
  // The run itself reports the rows that it skips.
  if (options.on_bad_row == data::OnBadRow::kSkip) options.on_bad_row = data::OnBadRow::kCount;
  try {
    Sample sample;
    if (const auto update = inputs.recipe().sample) {
      sample.rows = update(inputs.config, inputs.data).rows;
      sample.update_rows = std::ssize(sample.rows);
    } else {
      sample.rows = data::Loader(inputs.data.train, options).next()->rows;
    }
    sample.eval_documents = inputs.data.eval ? inputs.data.eval->size() : 0;
    return sample;
  } catch (const Error&) {
    return {};
  }
}

int64_t plan_disk(const LearnerInputs& inputs, const UpdateSchedule& schedule, bool between) {
  LearnerSizes sizes{
      .steps = schedule.total_steps(),
      .documents = inputs.data.train.size() + (inputs.data.eval ? inputs.data.eval->size() : 0),
      .ranks = inputs.ranks().size()};
  for (const std::string& name : checkpoints::SaveOptions().extra_files)
    if (const std::string file = join_path(inputs.config.model.path, name); exists(file))
      sizes.extra_bytes += file_size(file);
  RunConfig config = inputs.config;
  if (!between) config.checkpoint.every_steps = 0;
  if (!between) config.checkpoint.every_minutes = 0;
  return recipes::plan_disk(config, inputs.setup.architecture, sizes);
}

LearnerCheck check_learner(const LearnerInputs& inputs, const UpdateSchedule& schedule) {
  const LearnerFolder folder(inputs);
  folder.check();
  LearnerCheck check;
  read_rows(inputs, schedule, check);
  schedule.warn_of_keys_without_effect();
  if (const auto reader = checkpoints::open_newest(inputs.files.states())) {
    const Json state = reader->json();
    folder.check_origin(state);
    check_rows_of(state, inputs.recipe(), inputs.data.train, loader_options(inputs.config));
    check.step = state.at("step").as_int();
  }
  if (!inputs.is_adapter()) return check;
  const WeightTable base = layers::decoder_weight_table(inputs.setup.architecture);
  const AdapterConfig& adapter = inputs.config.adapters.front();
  const LoraPlan plan = choose_adapter(adapter, base).plan;
  if (const std::string& from = source_of(adapter); !from.empty())
    checkpoints::check_weights(checkpoints::ModelFolder::open_adapter(from, base), lora_table(base, plan));
  check.trained =
      fmt::format("{} adapted modules, {} tensors trained in full", plan.targets.size(), plan.saved.size());
  return check;
}

}  // namespace temper::recipes
