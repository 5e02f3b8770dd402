#include "training/passes/stage_times.h"

namespace temper::training {

void StageTimes::start(double planned_share) {
  planned_share_ = planned_share;
  passes_.first = mark(device_);
}

PipelineResult StageTimes::wait() const {
  const double all = passes_.second->seconds_since(*passes_.first);
  double computing = all;
  for (const auto& [begin, end] : transfers_) computing -= end->seconds_since(*begin);
  return {computing, all, planned_share_, 1};
}

}  // namespace temper::training
