// What the loop shows while it trains.
#include <algorithm>

#include "backends/peak.h"
#include "base/log.h"
#include "base/threads.h"
#include "recipes/loop/training_loop.h"

namespace temper::recipes {
namespace {

// The mean over adapters, as the loss.
void show_preference(const std::vector<Learner::Report>& reports, reports::StepReport& line) {
  double margin = 0, accuracy = 0, count = 0;
  bool pairs = true;
  for (const Learner::Report& report : reports) {
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
void show_distillation(const std::vector<Learner::Report>& reports, reports::StepReport& line) {
  double divergence = 0, agreement = 0, count = 0;
  for (const Learner::Report& report : reports) {
    if (!report.result.distillation) continue;
    ++count;
    divergence += report.result.distillation->divergence;
    agreement += report.result.distillation->agreement;
  }
  if (count == 0) return;
  line.extras.emplace_back("divergence", divergence / count);
  line.extras.emplace_back("agreement", agreement / count);
}

// The most crowded expert of any layer.
void show_routers(const std::vector<Learner::Report>& reports, reports::StepReport& line) {
  double largest = 0;
  for (const Learner::Report& report : reports)
    for (const training::RouterLoad& load : report.result.routers)
      largest = std::max(largest, load.largest_over_mean());
  if (largest > 0) line.extras.emplace_back("expert load", largest);
}

// Of answers, the mean over adapters; of updates behind a rollout's first, those of that rollout.
void show_reward(const std::vector<Learner::Report>& reports, std::optional<double>& last,
                 reports::StepReport& line) {
  double sum = 0, count = 0;
  for (const Learner::Report& report : reports)
    for (const auto& [name, value] : report.values)
      if (name == "reward") {
        sum += value.as_double();
        ++count;
      }
  if (count > 0) last = sum / count;
  if (last) line.extras.emplace_back("reward", *last);
}

}  // namespace

void TrainingLoop::show(const std::vector<Learner::Report>& reports) {
  reports::StepReport line;
  double tokens = 0, flops = 0, seconds = 0;
  for (const Learner::Report& report : reports) {
    // Of several adapters the line counts the longest's steps; losses are a mean.
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
    tokens += static_cast<double>(report.result.tokens);
    flops += report.result.flops;
    seconds = std::max(seconds, report.seconds);
  }
  show_preference(reports, line);
  show_reward(reports, reward_, line);
  show_distillation(reports, line);
  show_routers(reports, line);
  tokens_.add(tokens, seconds);
  flops_.add(flops, seconds);
  line.tokens_per_second = tokens_.per_second();
  if (peak_flops_ > 0) line.mfu = flops_.per_second() / (peak_flops_ * setup_.ranks.size());
  line.memory_bytes = memory_in_use();
  progress_->show(line);
}

// Of the process, or of the device that trains.
int64_t TrainingLoop::memory_in_use() const {
  if (setup_.facts.device.type == DeviceType::kCpu) return current_resident_bytes();
  int64_t held = 0;
  for (const RegionUsage& region : pool(setup_.facts.device).usage()) held += region.held;
  return held;
}

void TrainingLoop::find_peak() {
  if (!is_root()) return;  // which says what all ranks reach
  const HardwareFacts& facts = setup_.facts;
  peak_flops_ = backends::matmul_peak(facts, setup_.config.model.dtype, num_threads());
  if (facts.device.type == DeviceType::kCpu) return;
  log_info(fmt::format(
      "device: {} on {}{}", facts.name, to_string(facts.device),
      peak_flops_ > 0
          ? fmt::format("; peak is the published {:.0f} TFLOP/s of dense bfloat16", peak_flops_ / 1e12)
          : std::string()));
}

}  // namespace temper::recipes
