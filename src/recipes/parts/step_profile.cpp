#include "recipes/parts/step_profile.h"

#include <algorithm>

#include "backends/peak.h"
#include "base/files.h"
#include "base/log.h"
#include "base/threads/threads.h"
#include "collectives/at_root.h"
#include "device/transfer.h"

namespace temper::recipes {
namespace {

reports::MachinePeak peak_of(const HardwareFacts& facts, DType dtype) {
  const bool cpu = facts.device.type == DeviceType::kCpu;
  return {backends::matmul_peak(facts, dtype, num_threads()),
          cpu ? backends::measured_memory_bandwidth(num_threads()) : 0};
}

// What the table's last column is a part of.
std::string limits(const HardwareFacts& facts, const reports::MachinePeak& peak) {
  if (facts.device.type == DeviceType::kCpu)
    return fmt::format(
        "limits, measured here: matrix multiplications (mul) {:.0f} GFLOP/s, memory (mem) {:.1f} GB/s\n",
        peak.flops / 1e9, peak.bytes_per_second / 1e9);
  if (peak.flops == 0) return "";
  return fmt::format(
      "limit, as published for {}: dense bfloat16 matrix multiplications (mul) {:.0f} TFLOP/s\n", facts.name,
      peak.flops / 1e12);
}

// Means over steps; nothing where there are no stages.
std::string describe_waiting(const std::vector<training::PipelineResult>& steps) {
  if (steps.empty()) return "";
  double waiting = 0, planned = 0;
  for (const training::PipelineResult& step : steps) {
    waiting += step.waiting_share() / static_cast<double>(steps.size());
    planned += step.planned_share() / static_cast<double>(steps.size());
  }
  return fmt::format(
      "pipeline: stages waited for each other in {:.1f} % of the time of their passes; by the schedule and "
      "what the layers cost it is {:.1f} %\n",
      100 * waiting, 100 * planned);
}

}  // namespace

StepProfile::~StepProfile() {
  try {
    if (recording() && trace::on()) trace::stop();
  } catch (const std::exception&) {
    // Spans are open where the profile's own error ends it.
  }
}

void StepProfile::before_step() {
  if (steps_ == 0 || written_) return;
  ++begun_;
  if (begun_ == kWarmUp + 1) {
    const Device device = facts_.device;
    const bool waits = device.type != DeviceType::kCpu;
    ranks_.barrier("the beginning of the profile");  // from which all lanes count
    trace::start(waits ? [device] { synchronize(device); } : std::function<void()>());
  }
  if (begun_ == kWarmUp + 1 + steps_) {
    --begun_;  // this one is not recorded
    write();
  }
}

void StepProfile::add(const training::PipelineResult& passes) {
  if (recording()) passes_.push_back(passes);
}

void StepProfile::finish() {
  if (recording()) write();
}

void StepProfile::write() {
  const std::vector<trace::Event> events = trace::stop();
  written_ = true;
  const std::vector<std::string> lanes =
      ranks_.gather_objects("lanes of the profile", trace::chrome_lane(events, ranks_.rank()));
  const int64_t steps = begun_ - kWarmUp;
  collectives::at_root(ranks_, "the profile", [&] {
    write_file(file_, trace::chrome_trace(lanes));
    const reports::MachinePeak peak = peak_of(facts_, dtype_);
    log_info(fmt::format("profile of {} steps{}, each op waited for; open {} in ui.perfetto.dev\n{}{}{}",
                         steps, ranks_.is_alone() ? "" : " (the table is of rank 0)", file_,
                         reports::describe(reports::sum_up(events), steps, peak), limits(facts_, peak),
                         describe_waiting(passes_)));
  });
}

}  // namespace temper::recipes
