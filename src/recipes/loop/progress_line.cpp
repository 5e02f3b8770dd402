#include "recipes/loop/progress_line.h"

#include <algorithm>

namespace temper::recipes {
namespace {

// The mean over adapters, as for the loss.
void add_preference(const std::vector<UpdateReport>& reports, reports::StepReport& line) {
  double margin = 0, accuracy = 0, count = 0;
  bool pairs = true;
  for (const UpdateReport& report : reports) {
    if (!report.result.preference) continue;
    ++count;
    margin += report.result.preference->margin();
    accuracy += report.result.preference->accuracy();
    pairs = pairs && report.result.preference->pairs > 0;
  }
  if (count == 0) return;
  line.extras.emplace_back("margin", margin / count);
  if (pairs) line.extras.emplace_back("accuracy", accuracy / count);
}

// The mean over adapters.
void add_distillation(const std::vector<UpdateReport>& reports, reports::StepReport& line) {
  double divergence = 0, agreement = 0, count = 0;
  for (const UpdateReport& report : reports) {
    if (!report.result.distillation) continue;
    ++count;
    divergence += report.result.distillation->divergence;
    agreement += report.result.distillation->agreement;
  }
  if (count == 0) return;
  line.extras.emplace_back("divergence", divergence / count);
  line.extras.emplace_back("agreement", agreement / count);
}

// The largest load of an expert in any layer.
void add_expert_load(const std::vector<UpdateReport>& reports, reports::StepReport& line) {
  double largest = 0;
  for (const UpdateReport& report : reports)
    for (const training::RouterLoad& load : report.result.routers)
      largest = std::max(largest, load.largest_over_mean());
  if (largest > 0) line.extras.emplace_back("expert load", largest);
}

// The mean over adapters. Only the first update after a rollout reports the rewards of its answers.
void add_reward(const std::vector<UpdateReport>& reports, std::optional<double>& last,
                reports::StepReport& line) {
  double sum = 0, count = 0;
  for (const UpdateReport& report : reports)
    for (const auto& [name, value] : report.values)
      if (name == "reward") {
        sum += value.as_double();
        ++count;
      }
  if (count > 0) last = sum / count;
  if (last) line.extras.emplace_back("reward", *last);
}

}  // namespace

reports::StepReport progress_line(const std::vector<UpdateReport>& reports,
                                  std::optional<double>& last_reward) {
  reports::StepReport line;
  for (const UpdateReport& report : reports) {
    if (report.total_steps > line.total_steps) {
      line.step = report.step;
      line.total_steps = report.total_steps;
      line.epoch = report.epoch;
      line.lr = report.lr;
      line.seconds_left = report.train_seconds / static_cast<double>(report.step) *
                          static_cast<double>(report.total_steps - report.step);
    }
    line.loss += report.result.loss / static_cast<double>(reports.size());
    line.grad_norm = std::max(line.grad_norm, report.result.grad_norm);
  }
  add_preference(reports, line);
  add_reward(reports, last_reward, line);
  add_distillation(reports, line);
  add_expert_load(reports, line);
  return line;
}

StepWork work_of(const std::vector<UpdateReport>& reports) {
  StepWork work;
  for (const UpdateReport& report : reports) {
    work.tokens += static_cast<double>(report.result.tokens);
    work.flops += report.result.flops;
    work.seconds = std::max(work.seconds, report.seconds);
  }
  return work;
}

}  // namespace temper::recipes
