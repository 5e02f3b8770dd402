#include "recipes/loop/progress_reporter.h"

#include "backends/peak.h"
#include "base/log.h"
#include "base/threads/threads.h"
#include "recipes/loop/progress_line.h"

namespace temper::recipes {

void ProgressReporter::find_peak_flops() {
  if (setup_.ranks.rank() != 0) return;
  const HardwareFacts& facts = setup_.facts;
  peak_flops_ = backends::matmul_peak(facts, setup_.config.model.dtype, num_threads());
  if (facts.device.type == DeviceType::kCpu) return;
  log_info(fmt::format(
      "device: {} on {}{}", facts.name, to_string(facts.device),
      peak_flops_ > 0
          ? fmt::format("; peak is the published {:.0f} TFLOP/s of dense bfloat16", peak_flops_ / 1e12)
          : std::string()));
}

void ProgressReporter::begin() {
  if (setup_.ranks.rank() == 0) progress_ = std::make_unique<reports::Progress>();
}

void ProgressReporter::show(const std::vector<UpdateReport>& reports) {
  if (reports.empty() || !progress_) return;
  reports::StepReport line = progress_line(reports, reward_);
  const StepWork work = work_of(reports);
  tokens_.add(work.tokens, work.seconds);
  flops_.add(work.flops, work.seconds);
  line.tokens_per_second = tokens_.per_second();
  if (peak_flops_ > 0) line.mfu = flops_.per_second() / (peak_flops_ * setup_.ranks.size());
  line.memory_bytes = memory_in_use();
  progress_->show(line);
}

void ProgressReporter::finish() { progress_.reset(); }

// Of the process, or of the device that trains.
int64_t ProgressReporter::memory_in_use() const {
  if (setup_.facts.device.type == DeviceType::kCpu) return current_resident_bytes();
  int64_t held = 0;
  for (const RegionUsage& region : pool(setup_.facts.device).usage()) held += region.held;
  return held;
}

}  // namespace temper::recipes
