// What is known of a learner before anything is trained: for plans, and for --dry-run.
#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/hf_folder.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/learner/learner.h"
#include "recipes/plans/plan_disk.h"

namespace temper::recipes {
namespace {

// Whether the data are those that a state continues in; of recipes with batches of their own, training tells.
void check_rows_of(const Json& state, const Recipe& recipe, const data::Mixture& rows,
                   data::LoaderOptions options) {
  if (recipe.batches != nullptr) return;
  options.threads = 0;
  data::Loader(rows, options).restore(state.at("data"), state.find("stopped") != nullptr);
}

}  // namespace

Sample Learner::sample() const {
  constexpr int64_t kRows = 8;
  data::LoaderOptions options = loader_options(config_);
  options.threads = 0;
  options.pack_window = options.rows_per_step = kRows;
  options.tokens_per_step = 0;
  // The run itself reports the rows that it skips.
  if (options.on_bad_row == data::OnBadRow::kSkip) options.on_bad_row = data::OnBadRow::kCount;
  try {
    Sample sample;
    if (const auto update = recipe_of(config_).sample) {
      sample.rows = update(config_, data_).rows;
      sample.update_rows = std::ssize(sample.rows);
    } else {
      sample.rows = data::Loader(data_.train, options).next()->rows;
    }
    sample.eval_documents = data_.eval ? data_.eval->size() : 0;
    return sample;
  } catch (const Error&) {
    return {};
  }
}

int64_t Learner::state_bytes() const { return recipes::state_bytes(config_, setup_->architecture); }

int64_t Learner::plan_disk(bool between) const {
  LearnerSizes sizes{.steps = total_steps(),
                     .documents = data_.train.size() + (data_.eval ? data_.eval->size() : 0),
                     .ranks = ranks().size()};
  for (const std::string& name : checkpoints::SaveOptions().extra_files)
    if (const std::string file = join_path(config_.model.path, name); exists(file))
      sizes.extra_bytes += file_size(file);
  RunConfig config = config_;
  if (!between) config.checkpoint.every_steps = 0;
  if (!between) config.checkpoint.every_minutes = 0;
  return recipes::plan_disk(config, setup_->architecture, sizes);
}

// A row that would stop the run stops this, with the same words.
void Learner::read_rows(Check& check) const {
  constexpr double kSeconds = 60;
  const double end = seconds_now() + kSeconds;
  const Recipe& recipe = recipe_of(config_);
  if (recipe.sample != nullptr) {
    check.batch = recipe.sample(config_, data_);
    check.read = recipe.read_rows(config_, data_, total_steps(), end);
    return;
  }
  data::LoaderOptions options = loader_options(config_);
  options.threads = 0;
  data::Loader loader(data_.train, options);
  check.batch = *loader.next();
  int64_t epoch = check.batch.epoch;
  for (int64_t update = 1; update < total_steps() && epoch == 0 && check.read.all; ++update) {
    epoch = loader.next()->epoch;
    check.read.all = seconds_now() < end;
  }
  check.read.rows = std::min(loader.counts().rows, data_.train.size());
  if (data_.eval) read_all(*data_.eval, config_);
}

std::string Learner::try_rewards() const {
  const auto try_out = recipe_of(config_).try_rewards;
  return try_out == nullptr ? "" : try_out(config_, data_);
}

std::optional<RolloutTime> Learner::time_of_rollouts() const {
  const auto time = recipe_of(config_).time_of_rollouts;
  if (time == nullptr) return std::nullopt;
  return time({*setup_, config_, data_, files_, adapter_.get()});
}

Learner::Check Learner::check() const {
  check_folder();
  Check check;
  check.trained = "all weights";
  read_rows(check);
  warn_of_lengths();
  if (const auto reader = checkpoints::open_newest(files_.states())) {
    const Json state = reader->json();
    check_origin(state);
    check_rows_of(state, recipe_of(config_), data_.train, loader_options(config_));
    check.step = state.at("step").as_int();
  }
  if (!is_adapter()) return check;
  const WeightTable base = layers::decoder_weight_table(setup_->architecture);
  const AdapterConfig& adapter = config_.adapters.front();
  const LoraPlan plan = choose_adapter(adapter, base).plan;
  if (const std::string& from = source_of(adapter); !from.empty())
    checkpoints::check_weights(checkpoints::ModelFolder::open_adapter(from, base), lora_table(base, plan));
  check.trained =
      fmt::format("{} adapted modules, {} tensors trained in full", plan.targets.size(), plan.saved.size());
  return check;
}

}  // namespace temper::recipes
