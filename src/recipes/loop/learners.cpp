#include "recipes/loop/learners.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/kept_codes.h"
#include "collectives/at_root.h"
#include "models/folder_config.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/learner/learner_plan.h"
#include "recipes/plans/plan_disk.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {
namespace {

// Puts the adapter's name before the message of an Error.
template <class F>
void with_adapter_name(const std::string& adapter, const F& f) {
  try {
    f();
  } catch (const Error& error) {
    if (adapter.empty()) throw;
    throw Error(fmt::format("[adapters.{}] {}", adapter, error.what()), error.kind());
  }
}

// `shares_data`: an Error in its data concerns all adapters, and names none.
std::unique_ptr<Learner> make_learner(const RunSetup& setup, const RunConfig& run, bool shares_data) {
  const std::string name = run.adapters.empty() ? "" : run.adapters.front().name;
  std::optional<DataSets> data;
  with_adapter_name(shares_data ? "" : name, [&] { data.emplace(DataSets::load(run, setup.text)); });
  std::unique_ptr<Learner> learner;
  with_adapter_name(name, [&] { learner = std::make_unique<Learner>(setup, run, std::move(*data)); });
  return learner;
}

void check_can_be_saved(const std::string& folder) {
  if (checkpoints::quantized_form_of(folder) == nullptr) return;
  const WeightTable table = layers::decoder_weight_table(
      models::configure(models::config_of_folder(folder), join_path(folder, "config.json")));
  if (table.keeps_some()) checkpoints::check_kept(checkpoints::ModelFolder::open(folder), table);
}

// What is trained in full is saved at the end: where that would fail, nothing is trained.
void check_results(const RunConfig& config) {
  if (config.adapters.empty()) check_can_be_saved(config.model.path);
  if (const auto critic = recipe_of(config).critic(config); critic && !critic->lora)
    check_can_be_saved(critic->folder);
}

}  // namespace

Learners::Learners(const RunSetup& setup) : setup_(setup) {
  const RunConfig& config = setup.config;
  check_results(config);
  for (const AdapterConfig& adapter : config.adapters)
    learners_.push_back(
        make_learner(setup, run_of_adapter(config, adapter), adapter.train.empty() && adapter.eval.empty()));
  if (learners_.empty()) learners_.push_back(make_learner(setup, config, true));
}

bool Learners::all_done() const {
  return std::ranges::all_of(learners_, [](const auto& learner) { return learner->is_done(); });
}

std::vector<Learner*> Learners::unsaved() const {
  std::vector<Learner*> found;
  for (const auto& learner : learners_)
    if (learner->stop_reason().empty() && learner->is_unsaved()) found.push_back(learner.get());
  return found;
}

std::vector<Learner*> Learners::due(const std::function<int64_t(const RunConfig&)>& every_steps) const {
  std::vector<Learner*> found = unsaved();
  std::erase_if(found, [&](const Learner* learner) {
    const int64_t every = every_steps(learner->config());
    return !learner->is_done() && (every <= 0 || learner->step() % every != 0);
  });
  return found;
}

int64_t Learners::disk_bytes(bool between) const {
  int64_t bytes = 0;
  for (const auto& learner : learners_) bytes += plan_disk(learner->inputs(), learner->schedule(), between);
  return bytes;
}

int64_t Learners::checkpoint_bytes() const {
  int64_t bytes = 0;
  for (const auto& learner : learners_) bytes += state_bytes(learner->config(), setup_.architecture);
  return bytes;
}

std::vector<data::PackedRow> Learners::rows_to_calibrate() const {
  std::vector<LearnerData> all;
  for (const auto& learner : learners_) all.push_back({learner->config(), learner->data()});
  return recipes::rows_to_calibrate(all, setup_.config.quantize.calibration_rows);
}

void Learners::start_each(const std::function<void(Learner&)>& start) {
  for (size_t i = 0; i < learners_.size();) {
    Learner& learner = *learners_[i];
    try {
      collectives::at_each(setup_.ranks, "what begins",
                           [&] { with_adapter_name(learner.name(), [&] { start(learner); }); });
      ++i;
    } catch (const Error& error) {
      if (!collectives::is_of_all(setup_.ranks, error) || error.kind() != ErrorKind::kInput ||
          learners_.size() == 1)
        throw;
      log_warning(fmt::format("{}; this adapter does not start, the others continue", error.what()));
      not_started_.push_back(fmt::format("{} did not start: {}", learner.name(), error.what()));
      learners_.erase(learners_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void Learners::check_all_completed() const {
  std::vector<std::string> lines = not_started_;
  for (const auto& learner : learners_)
    if (!learner->stop_reason().empty())
      lines.push_back(
          fmt::format("{} after step {}: {}", learner->name(), learner->step(), learner->stop_reason()));
  if (lines.empty()) return;
  fail(
      "[adapters] {} of {} stopped early, the others are done:\n  {}\nCorrect the rows in place (keep "
      "their number) or set data.on_bad_row: skip, and run the same command to resume. With other settings "
      "give the adapter another name; its key from starts from the saved adapter",
      lines.size(), learners_.size() + not_started_.size(), join(lines, "\n  "));
}

}  // namespace temper::recipes
