#include "recipes/loop/dry_run.h"

#include <algorithm>
#include <cmath>

#include "backends/timed_choices.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "recipes/learner/learner_plan.h"
#include "recipes/loop/checkpoint_manager.h"
#include "recipes/loop/planned_memory.h"
#include "recipes/loop/planned_pipeline.h"
#include "recipes/loop/train_step.h"
#include "recipes/parts/update_time.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/plans/stage_report.h"
#include "training/rounded_weights.h"

namespace temper::recipes {
namespace {

std::vector<data::PackedRow> first_rows(const std::vector<data::PackedRow>& rows, int64_t count) {
  return {rows.begin(), rows.begin() + std::min(count, static_cast<int64_t>(rows.size()))};
}

// The fewest rows that the objective accepts: KTO needs answers to two prompts.
template <class Take>
int64_t fewest_rows(const std::vector<Learner*>& learners, int64_t all, Take take) {
  for (int64_t rows = 1;; rows = std::min(all, 2 * rows)) try {
      take(rows);
      for (Learner* learner : learners) learner->trained().check(learner->rows().rows());
      return rows;
    } catch (const Error&) {
      if (rows >= all) throw;
    }
}

// What the recipe's rewards say of a made-up answer; empty: there are none.
std::string try_rewards(const LearnerInputs& inputs) {
  const auto try_out = inputs.recipe().try_rewards;
  return try_out == nullptr ? "" : try_out(inputs.config, inputs.data);
}

class DryRun {
 public:
  DryRun(const RunConfig& config, const RunOptions& options, collectives::Group& ranks)
      : options_(options),
        setup_(config, "", ranks),
        learners_(setup_),
        checkpoints_(setup_, learners_),
        step_(setup_) {}
  void run();

 private:
  std::string describe_model() const;
  std::string describe_learners();
  std::string describe_resources(const RunMemory& plan);
  std::string describe_ranks(const PlannedDivision& planned, const RunMemory& plan) const;
  std::string describe_time();
  double seconds_of_update();

  RunOptions options_;
  RunSetup setup_;
  Learners learners_;
  CheckpointManager checkpoints_;
  TrainStep step_;
  double updates_ = 0;  // that are still to be made
};

void DryRun::run() {
  const ops::Preferences preferred = preferred_kernels(setup_.config, setup_.facts);
  const RunMemory plan = plan_memory(setup_, learners_, options_, preferred);
  const backends::RunChoices tried(RunFiles{setup_.config.output}.algorithms(), has_states(setup_.config),
                                   backends::KeepChoices::kNo);
  setup_.load_weights(preferred, options_.verbose);
  std::string report = describe_model() + describe_learners();
  if (const std::string rewards = try_rewards(learners_.front().inputs()); !rewards.empty())
    report += "rewards        " + rewards + "\n";
  report += describe_resources(plan);
  if (options_.planned)
    report += describe_ranks(*options_.planned, plan);
  else if (updates_ > 0)
    report += "time           " + describe_time() + "\n";
  print_answer(options_, report + "Nothing was trained (--dry-run).");
  explain_memory(setup_, options_, plan);
}

std::string DryRun::describe_model() const {
  const ModelConfig& model = setup_.config.model;
  return fmt::format(
      "configuration  ok\nmodel          {}: {:.1f} M parameters, {}\ntokenizer      {} tokens, {}\n",
      model.path, static_cast<double>(setup_.model->decoder.parameters().num_elements()) / 1e6,
      model.kept_in(), setup_.text.tokenizer.vocab_size(),
      setup_.text.chat ? "with a chat template" : "without a chat template");
}

std::string describe_learner(const Learner& learner, const LearnerCheck& found) {
  std::string report;
  if (learner.is_adapter()) report += fmt::format("adapter        {}: {}\n", learner.name(), found.trained);
  const int64_t rows = learner.data().train.size();
  report += fmt::format(
      "data           {} rows{}; first update: {} rows, {} tokens, {} of them targets\n", rows,
      found.read.all ? ""
                     : fmt::format("; {} of them were read in a minute (temper data inspect reads all)",
                                   found.read.rows),
      found.batch.rows.size(), found.batch.tokens, found.batch.target_tokens);
  const int64_t steps = learner.total_steps();
  return report + fmt::format("steps          {}{}\n", steps,
                              found.step == 0 ? ""
                              : found.step >= steps
                                  ? ": all of them are done, this run is finished"
                                  : fmt::format(": {} are done, the run resumes after them", found.step));
}

std::string DryRun::describe_learners() {
  std::string report;
  for (const auto& learner : learners_) {
    const LearnerCheck found = check_learner(learner->inputs(), learner->schedule());
    updates_ = std::max(updates_, static_cast<double>(learner->total_steps() - found.step));
    report += describe_learner(*learner, found);
    learner->rows().take(found.batch.rows);
  }
  return report;
}

std::string DryRun::describe_resources(const RunMemory& plan) {
  const std::string saved = checkpoints_.plan();
  std::string report = fmt::format(
      "checkpoints    {}\ndisk           {} needed, {} free\nmemory         about {} needed, {} allowed\n",
      saved, format_bytes(checkpoints_.planned_disk_bytes()),
      format_bytes(free_disk_bytes(setup_.config.output)), format_bytes(plan.total),
      format_bytes(pool(setup_.facts.device).limit()));
  if (plan.host_copies > 0)
    report += fmt::format("CPU's memory   {} for copies of checkpoints that are being written\n",
                          format_bytes(plan.host_copies));
  return report;
}

std::string DryRun::describe_ranks(const PlannedDivision& planned, const RunMemory& plan) const {
  const Mesh& mesh = planned.mesh;
  const int64_t stages = planned.keys.pipeline;
  if (stages == 1)
    return fmt::format("ranks          {}: {}; memory is that of each\n", mesh.size(), to_string(mesh));
  std::vector<std::vector<data::PackedRow>> rows;
  for (const auto& learner : learners_) rows.push_back(learner->rows().rows());
  return fmt::format(
      "ranks          {}: pipeline {}, {}; memory is that of a rank of the stage that needs most\n{}{}",
      stages * mesh.size(), stages, to_string(mesh), describe_stages(plan.stages),
      describe_schedule(setup_.architecture, setup_.config, planned, setup_.facts.device, rows));
}

std::string DryRun::describe_time() {
  try {
    for (const auto& learner : learners_) learner->build_to_measure();
    const double seconds = seconds_of_update();
    double all = updates_ * seconds;
    std::string rollouts;
    for (const auto& learner : learners_)
      if (const auto measure = learner->inputs().recipe().time_of_rollouts) {
        const RolloutTime time = measure(learner->inputs().for_batches(learner->trained().adapter()));
        const double count = std::ceil(updates_ / static_cast<double>(time.updates));
        all += count * time.seconds;
        rollouts += fmt::format(" and {:.0f} rollouts of {:.2g} s {}", count, time.seconds, time.condition);
      }
    return fmt::format(
        "about {} for {:.0f} updates of {:.2g} s{}; {}evaluations and checkpoints are not included",
        format_duration(all), updates_, seconds, rollouts, rollouts.empty() ? "" : "rewards, scores, ");
  } catch (const Error& error) {
    return fmt::format("not estimated: {}", error.what());
  }
}

// Trains the model in memory, which is not saved.
double DryRun::seconds_of_update() {
  // Without a calibration: passes take the same time with any amax.
  if (quantizers::Quantizers& quantizers = setup_.model->decoder.quantizers(); !quantizers.empty()) {
    quantizers.set_ready();
    if (learners_.are_adapters()) training::round_weights(setup_.model->decoder);
  }
  step_.prepare(learners_);
  std::vector<Learner*> learners;
  std::vector<std::vector<data::PackedRow>> whole;
  UpdateToTime update;
  for (const auto& learner : learners_) {
    learners.push_back(learner.get());
    whole.push_back(learner->rows().rows());
    update.rows = std::max(update.rows, static_cast<int64_t>(learner->rows().rows().size()));
  }
  const auto take = [&](int64_t rows) {
    for (size_t i = 0; i < learners.size(); ++i) learners[i]->rows().take(first_rows(whole[i], rows));
  };
  update.fewest = fewest_rows(learners, update.rows, take);
  update.tokens = [&](int64_t rows) {
    double tokens = 0;
    for (const auto& all : whole)
      for (const data::PackedRow& row : first_rows(all, rows)) tokens += static_cast<double>(row.size());
    return tokens;
  };
  update.measure = [&](int64_t rows) {
    take(rows);
    const double start = seconds_now();
    for (training::PendingStep& step : step_.begin(learners)) step.wait();
    return seconds_now() - start;
  };
  return time_update(update);
}

}  // namespace

void dry_run(const RunConfig& config, const RunOptions& options, collectives::Group& ranks) {
  DryRun(config, options, ranks).run();
}

}  // namespace temper::recipes
