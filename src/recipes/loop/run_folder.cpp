#include "recipes/loop/run_folder.h"

#include <algorithm>

#include "base/date.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parts/build.h"
#include "base/text.h"
#include "checkpoints/states/training_state.h"
#include "ops/report.h"
#include "parallel/layout_file.h"
#include "recipes/keys/conflicts.h"
#include "recipes/learner/learner_folder.h"
#include "recipes/parts/output.h"
#include "recipes/plans/run_kernels.h"

namespace temper::recipes {

void RunFolder::open(const RunConfig& config) {
  make_directories(files_.folder);
  lock_.emplace(files_.folder);
  console_.open(files_.console(), fmt::format("--- {}, temper {}", utc_now(), program_version()));
  check_calibration(config);
}

void RunFolder::open_learners(const RunConfig& config, const Learners& learners) const {
  for (const auto& learner : learners) LearnerFolder(learner->inputs()).open(resolved_yaml_);
  if (learners.are_adapters() && !has_states(config)) write_config(files_.config(), resolved_yaml_);
}

void RunFolder::write_records(const RunSetup& setup, const Learners& learners) const {
  for (const auto& learner : learners) LearnerFolder(learner->inputs()).keep_config(resolved_yaml_);
  if (learners.are_adapters()) write_config(files_.config(), resolved_yaml_);
  write_kernels(setup);
  if (!setup.ranks.is_alone())
    write_file(files_.layout(),
               parallel::layout_json(setup.model->decoder.parameters(), setup.model->decoder.ranks().stages)
                       .dump(2) +
                   "\n");
}

// A calibration is found once, and is exported with the configuration in the folder.
void RunFolder::check_calibration(const RunConfig& config) const {
  if (!exists(files_.config()) || checkpoints::list_states(files_.calibration()).empty()) return;
  std::vector<std::string> keys = conflicting_keys(files_.config(), config);
  std::erase_if(keys, [](const std::string& key) { return !key.starts_with("quantize."); });
  if (!keys.empty())
    fail(
        "[{}] is the calibration of a model that is quantized otherwise:\n  {}\nChoose another output, or "
        "restore these keys",
        files_.calibration(), join(keys, "\n  "));
}

void RunFolder::warn_of_other_kernels(const ops::BoundOps& ops, const ops::FieldValues& before) const {
  for (const ops::Choice& choice : ops.choices()) {
    const auto was = before.find(ops::field_of(choice.field));
    if (exists(files_.kernels()) && was != before.end() && choice.modules.empty() &&
        was->second != choice.provider)
      log_warning(fmt::format("{} was {} before and is {} now: the run resumes, but not bit for bit",
                              choice.field, was->second, choice.provider));
  }
}

void RunFolder::write_kernels(const RunSetup& setup) const {
  Json kernels = ops::explain_json(setup.model->decoder.ops(), setup.facts);
  kernels.set("version", version());
  kernels.set("commit", commit().empty() ? Json() : Json(commit()));
  write_file(files_.kernels(), kernels.dump(2) + "\n");
}

}  // namespace temper::recipes
