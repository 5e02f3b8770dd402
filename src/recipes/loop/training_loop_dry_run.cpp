// The loop with --dry-run: checks, and how long the run is expected to take.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/training_state.h"
#include "recipes/loop/training_loop.h"
#include "recipes/parts/exchange_plan.h"
#include "recipes/parts/update_time.h"
#include "training/rounded_weights.h"

namespace temper::recipes {
namespace {

std::vector<data::PackedRow> first_rows(const std::vector<data::PackedRow>& rows, int64_t count) {
  return {rows.begin(), rows.begin() + std::min(count, static_cast<int64_t>(rows.size()))};
}

// KTO cannot judge an answer without one to another prompt.
template <class Take>
int64_t fewest_rows(const std::vector<Learner*>& learners, int64_t all, Take take) {
  for (int64_t rows = 1;; rows = std::min(all, 2 * rows)) try {
      take(rows);
      for (const Learner* learner : learners) learner->check_rows();
      return rows;
    } catch (const Error&) {
      if (rows >= all) throw;
    }
}

}  // namespace

void TrainingLoop::check(const ops::Preferences& preferred, const RunMemory& plan) {
  const RunConfig& config = setup_.config;
  setup_.load_weights(preferred, options_.verbose);
  std::string report = fmt::format(
      "configuration  ok\nmodel          {}: {:.1f} M parameters, {}\ntokenizer      {} tokens, {}\n",
      config.model.path, static_cast<double>(setup_.model->decoder.parameters().num_elements()) / 1e6,
      config.model.kept_in(), setup_.text.tokenizer.vocab_size(),
      setup_.text.chat ? "with a chat template" : "without a chat template");
  double updates = 0;
  for (const auto& learner : learners_) {
    const Learner::Check found = learner->check();
    updates = std::max(updates, static_cast<double>(learner->total_steps() - found.step));
    report += report_of(*learner, found);
    learner->take_rows(found.batch.rows);
  }
  if (const std::string judged = learners_.front()->try_rewards(); !judged.empty())
    report += "rewards        " + judged + "\n";
  const std::string saved = plan_checkpoints();
  const Pool& memory = pool(setup_.facts.device);
  report += fmt::format(
      "checkpoints    {}\ndisk           {} needed, {} free\nmemory         about {} needed, {} allowed\n",
      saved, format_bytes(plan_disk_of_all(!clock_.is_left_out())),
      format_bytes(free_disk_bytes(config.output)), format_bytes(plan.total), format_bytes(memory.limit()));
  if (plan.host_copies > 0)
    report += fmt::format("CPU's memory   {} for copies of checkpoints that are being written\n",
                          format_bytes(plan.host_copies));
  const Mesh& mesh = options_.planned;
  if (mesh.size() > 1)
    report += fmt::format("ranks          {}: {}; memory is that of each\n", mesh.size(), to_string(mesh));
  else if (updates > 0)
    report += "time           " + estimated_time(updates) + "\n";
  print(report + "Nothing was trained (--dry-run).");
  explain_memory(plan);
}

std::string TrainingLoop::report_of(const Learner& learner, const Learner::Check& found) const {
  std::string report;
  if (learner.is_adapter()) report += fmt::format("adapter        {}: {}\n", learner.name(), found.trained);
  const int64_t rows = learner.data().train.size();
  report += fmt::format(
      "data           {} rows{}; first update: {} rows, {} tokens, {} of them targets\n", rows,
      found.read.all ? ""
                     : fmt::format(", of which {} were read in a minute (temper data inspect reads all)",
                                   found.read.rows),
      found.batch.rows.size(), found.batch.tokens, found.batch.target_tokens);
  const int64_t steps = learner.total_steps();
  return report + fmt::format("steps          {}{}\n", steps,
                              found.step == 0 ? ""
                              : found.step >= steps
                                  ? ": all of them are done, this run is finished"
                                  : fmt::format(": {} are done, the run resumes after them", found.step));
}

// What a dry run finds out is its result, like that of other commands.
void TrainingLoop::print(const std::string& text) const {
  if (!options_.dry_run) return log_info(text);
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void TrainingLoop::explain_memory(const RunMemory& plan) const {
  if (!options_.explain_memory) return;
  print(memory_table(setup_.phases->usage(), setup_.phases->peak_live(), &plan));
  if (const std::string chunk = describe_chunk(setup_.config); !chunk.empty()) print(chunk);
}

std::string TrainingLoop::estimated_time(double updates) {
  try {
    for (const auto& learner : learners_) learner->build_to_measure();
    const double seconds = seconds_of_update();
    double all = updates * seconds;
    std::string rollouts;
    for (const auto& learner : learners_)
      if (const auto time = learner->time_of_rollouts()) {
        const double count = std::ceil(updates / static_cast<double>(time->updates));
        all += count * time->seconds;
        rollouts += fmt::format(" and {:.0f} rollouts of {:.2g} s {}", count, time->seconds, time->condition);
      }
    return fmt::format(
        "about {} for {:.0f} updates of {:.2g} s{}; {}evaluations and checkpoints are not included",
        format_duration(all), updates, seconds, rollouts, rollouts.empty() ? "" : "rewards, scores, ");
  } catch (const Error& error) {
    return fmt::format("not estimated: {}", error.what());
  }
}

// Measured with the model in memory, which nobody saves.
double TrainingLoop::seconds_of_update() {
  // Nothing is calibrated: passes take as long with any amax.
  if (quantizers::Quantizers& quantizers = setup_.model->decoder.quantizers(); !quantizers.empty()) {
    quantizers.set_ready();
    if (learners_.front()->is_adapter()) training::round_weights(setup_.model->decoder);
  }
  if (learners_.front()->is_adapter())
    adapters_ = std::make_unique<training::AdapterTrainer>(
        setup_.model->decoder, trainer_options(setup_.config, setup_.model->decoder, 1),
        setup_.groups->data());
  std::vector<Learner*> learners;
  std::vector<std::vector<data::PackedRow>> whole;
  UpdateToTime update;
  for (const auto& learner : learners_) {
    learners.push_back(learner.get());
    whole.push_back(learner->rows());
    update.rows = std::max(update.rows, static_cast<int64_t>(learner->rows().size()));
  }
  const auto take = [&](int64_t rows) {
    for (size_t i = 0; i < learners.size(); ++i) learners[i]->take_rows(first_rows(whole[i], rows));
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
    for (training::PendingStep& step : begin(learners)) step.wait();
    return seconds_now() - start;
  };
  return time_update(update);
}

}  // namespace temper::recipes
