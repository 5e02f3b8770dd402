// What is known of a learner before anything is trained: for plans, and for --dry-run.
#include "base/error.h"
#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/hf_folder.h"
#include "recipes/adapter_config.h"
#include "recipes/learner.h"
#include "recipes/plan_disk.h"

namespace temper::recipes {

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

int64_t Learner::plan_disk() const {
  LearnerSizes sizes{.steps = total_steps(),
                     .documents = data_.train.size() + (data_.eval ? data_.eval->size() : 0),
                     .ranks = ranks().size()};
  for (const std::string& name : checkpoints::SaveOptions().extra_files)
    if (const std::string file = join_path(config_.model.path, name); exists(file))
      sizes.extra_bytes += file_size(file);
  return recipes::plan_disk(config_, setup_->architecture, sizes);
}

Learner::Check Learner::check() const {
  check_folder();
  data::LoaderOptions options = loader_options(config_);
  options.threads = 0;
  const auto own = recipe_of(config_).sample;
  Check check{own != nullptr ? own(config_, data_) : *data::Loader(data_.train, options).next(), 0,
              "all weights"};
  warn_of_warmup();
  if (const auto reader = checkpoints::open_newest(files_.states()))
    check.step = reader->json().at("step").as_int();
  if (data_.eval && own == nullptr) read_all(*data_.eval, config_);
  if (!is_adapter()) return check;
  const WeightTable base = layers::decoder_weight_table(setup_->architecture);
  const AdapterConfig& adapter = config_.adapters.front();
  const LoraPlan plan = choose_adapter(adapter, base).plan;
  if (const std::string& from = source_of(adapter); !from.empty())
    checkpoints::check_weights(checkpoints::ModelFolder::open_adapter(from), lora_table(base, plan));
  check.trained =
      fmt::format("{} adapted modules, {} tensors trained in full", plan.targets.size(), plan.saved.size());
  return check;
}

}  // namespace temper::recipes
