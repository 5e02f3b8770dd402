// The run's folder: starting, kernels, checking.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/training_state.h"
#include "ops/measure.h"
#include "ops/report.h"
#include "recipes/plan.h"
#include "recipes/run.h"

namespace temper::recipes {
void Run::open_folders() {
  make_directories(files_.folder);
  lock_.emplace(files_.folder);
  checkpoints::require_free_disk(files_.folder, plan_disk_of_all());
  for (const auto& lane : lanes_) lane->open_folder(resolved_yaml_);
  if (lanes_.front()->is_adapter()) write_file(files_.config(), resolved_yaml_);
}

bool Run::has_states() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->has_states(); });
}

int64_t Run::plan_disk_of_all() const {
  int64_t bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->plan_disk();
  return bytes;
}

// What is tried first for fields that were left out: the kernels that the run had so far, so that it goes on
// bit for bit; for a new run what was measured on this machine.
ops::Preferences Run::preferred_kernels() const {
  if (!exists(files_.kernels()) || !has_states())
    return {ops::remembered(session_.facts, session_.config.model.dtype)};
  ops::FieldValues before;
  const Json kernels = Json::parse_file(files_.kernels());
  if (const Json* hardware = kernels.find("hardware");
      hardware != nullptr && *hardware != Json(session_.facts.hardware)) {
    log_warning(fmt::format("the run was on {} so far and is on {} now: it goes on, but not bit for bit",
                            kernels.at("device").dump(), session_.facts.name));
    return {ops::remembered(session_.facts, session_.config.model.dtype)};
  }
  // The same kernels on another device of the class use its own instructions and algorithms.
  if (const Json* device = kernels.find("device"); device != nullptr && *device != Json(session_.facts.name))
    log_warning(
        fmt::format("the run was on {} so far and is on \"{}\" now: it resumes with the same kernels, "
                    "but results may differ in their last bits from here on",
                    device->dump(), session_.facts.name));
  for (const Json& choice : kernels.at("choices").as_array())
    if (choice.at("modules").as_string() == "*" && choice.at("kernel").is_string())
      before[ops::field_of(choice.at("field").as_string())] = choice.at("kernel").as_string();
  return {std::move(before), "as in this run so far"};
}

// Other hardware may have other kernels: the run can go on, but not bit for bit.
void Run::store_kernels(const ops::FieldValues& before) const {
  const ops::BoundOps& ops = session_.model->decoder.ops();
  for (const ops::Choice& choice : ops.choices()) {
    const auto was = before.find(ops::field_of(choice.field));
    if (exists(files_.kernels()) && was != before.end() && choice.modules.empty() &&
        was->second != choice.provider)
      log_warning(fmt::format("{} was {} so far and is {} now: the run goes on, but not bit for bit",
                              choice.field, was->second, choice.provider));
  }
  write_file(files_.kernels(), ops::explain_json(ops, session_.facts).dump(2) + "\n");
}

void Run::check(const ops::Preferences& preferred, const MemoryPlan& plan) const {
  const RunConfig& config = session_.config;
  const auto model = models::load_model(config.model.path, build_options(config, session_.facts, preferred));
  std::string report = fmt::format(
      "configuration  ok\nmodel          {}: {:.1f} M parameters, {}\ntokenizer      {} tokens, {}\n",
      config.model.path, static_cast<double>(model->decoder.parameters().num_elements()) / 1e6,
      config.model.kept_in(), session_.text.tokenizer.vocab_size(),
      session_.text.chat ? "with a chat template" : "without a chat template");
  for (const auto& lane : lanes_) {
    const Lane::Check found = lane->check();
    if (lane->is_adapter()) report += fmt::format("adapter        {}: {}\n", lane->name(), found.trained);
    report += fmt::format(
        "data           {} rows; first update: {} rows, {} tokens, {} of them targets\nsteps          {}\n",
        lane->data().train.size(), found.batch.rows.size(), found.batch.tokens, found.batch.target_tokens,
        lane->total_steps());
  }
  checkpoints::require_free_disk(config.output, plan_disk_of_all());
  const Pool& memory = pool(session_.facts.device);
  report += fmt::format("disk           {} needed, {} free\nmemory         about {} needed, {} allowed\n",
                        format_bytes(plan_disk_of_all()), format_bytes(free_disk_bytes(config.output)),
                        format_bytes(plan.total), format_bytes(memory.limit()));
  log_info(report + "kernels\n" + ops::explain(model->decoder.ops(), session_.facts) +
           "Nothing was trained (--dry-run).");
  if (options_.explain_memory) log_info(memory_table(memory.usage(), memory.peak_live(), &plan));
}

}  // namespace temper::recipes
