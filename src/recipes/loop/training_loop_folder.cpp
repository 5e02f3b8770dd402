// The folder of the run: its lock, console text and configuration, and the kernels that it has.
#include <algorithm>

#include "base/build.h"
#include "base/date.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/training_state.h"
#include "collectives/at_root.h"
#include "ops/measure.h"
#include "ops/report.h"
#include "parallel/layout_file.h"
#include "recipes/keys/conflicts.h"
#include "recipes/loop/training_loop.h"
#include "recipes/parts/output.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {

void TrainingLoop::open_folders() {
  make_directories(files_.folder);
  lock_.emplace(files_.folder);
  console_.open(files_.console(), fmt::format("--- {}, temper {}", utc_now(), program_version()));
  check_calibration();
  log_info("checkpoints: " + plan_checkpoints());
  for (const auto& learner : learners_) learner->open_folder(resolved_yaml_);
  if (learners_.front()->is_adapter() && !has_states(setup_.config))
    write_config(files_.config(), resolved_yaml_);
}

// All learners have begun, or were resumed: their folders tell of this command from now on.
void TrainingLoop::keep_record() const {
  for (const auto& learner : learners_) learner->keep_config(resolved_yaml_);
  if (learners_.front()->is_adapter()) write_config(files_.config(), resolved_yaml_);
  write_kernels();
  if (setup_.mesh.size() > 1)
    write_file(files_.layout(), parallel::layout_json(setup_.model->decoder.parameters()).dump(2) + "\n");
}

// Checkpoints that nobody has asked for are left out where the disk has no room for them.
std::string TrainingLoop::plan_checkpoints() {
  const std::string without =
      clock_.leave_out(free_disk_bytes(files_.folder), plan_disk_of_all(true), plan_disk_of_all(false));
  if (!without.empty()) log_warning(without);
  checkpoints::require_free_disk(files_.folder, plan_disk_of_all(!clock_.is_left_out()));
  int64_t state = 0;
  for (const auto& learner : learners_) state += learner->state_bytes();
  return clock_.describe(state);
}

// What a folder's model is calibrated for is found once, and exported by the folder's configuration.
void TrainingLoop::check_calibration() const {
  if (!exists(files_.config()) || checkpoints::list_states(files_.calibration()).empty()) return;
  std::vector<std::string> keys = conflicting_keys(files_.config(), setup_.config);
  std::erase_if(keys, [](const std::string& key) { return !key.starts_with("quantize."); });
  if (!keys.empty())
    fail(
        "[{}] is the calibration of a model that is quantized otherwise:\n  {}\nChoose another output, or "
        "restore these keys",
        files_.calibration(), join(keys, "\n  "));
}

int64_t TrainingLoop::plan_disk_of_all(bool between) const {
  int64_t bytes = 0;
  for (const auto& learner : learners_) bytes += learner->plan_disk(between);
  return bytes;
}

// Other hardware may have other kernels: the run can resume, but not bit for bit.
void TrainingLoop::compare_kernels(const ops::FieldValues& before) const {
  const ops::BoundOps& ops = setup_.model->decoder.ops();
  for (const ops::Choice& choice : ops.choices()) {
    const auto was = before.find(ops::field_of(choice.field));
    if (exists(files_.kernels()) && was != before.end() && choice.modules.empty() &&
        was->second != choice.provider)
      log_warning(fmt::format("{} was {} before and is {} now: the run resumes, but not bit for bit",
                              choice.field, was->second, choice.provider));
  }
}

void TrainingLoop::write_kernels() const {
  Json kernels = ops::explain_json(setup_.model->decoder.ops(), setup_.facts);
  kernels.set("version", version());
  kernels.set("commit", commit().empty() ? Json() : Json(commit()));
  write_file(files_.kernels(), kernels.dump(2) + "\n");
}

// Written again as it is then, also where it is not what it was: the error says both.
void TrainingLoop::check_kernels(const std::vector<ops::ModuleKernel>& bound) const {
  collectives::at_root(setup_.ranks, "kernels at the end", [&] { write_kernels(); });
  ops::check_unchanged(bound, setup_.model->decoder.ops().bindings());
}

// Rows of all adapters, as many of each.
void TrainingLoop::quantize_base() {
  recipes::quantize_base(setup_, files_.calibration(), [&] {
    std::vector<LearntFrom> all;
    for (const auto& learner : learners_) all.push_back({learner->config(), learner->data()});
    return rows_to_calibrate(all, setup_.config.quantize.calibration_rows);
  });
}

}  // namespace temper::recipes
