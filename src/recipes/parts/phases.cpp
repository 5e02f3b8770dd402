#include "recipes/parts/phases.h"

#include <algorithm>

namespace temper::recipes {

int64_t Phases::end_phase() {
  Pool& memory = pool(device_);
  const int64_t bytes = memory.peak_live();
  before_ = usage();
  peak_live_ = peak_live();
  peak_held_ = peak_held();
  memory.reset_peak();
  return bytes;
}

int64_t Phases::end_rollout(collectives::Group& ranks) {
  has_rollouts_ = true;
  return std::ranges::max(ranks.gather("memory of rollouts", end_phase()));
}

void Phases::end_update(collectives::Group& ranks) {
  if (has_rollouts_) update_bytes_ = std::ranges::max(ranks.gather("memory of updates", end_phase()));
}

MemoryUsage Phases::usage() const {
  MemoryUsage all = pool(device_).usage();
  for (size_t i = 0; i < all.size(); ++i) all[i].peak = std::max(all[i].peak, before_[i].peak);
  return all;
}

int64_t Phases::peak_live() const { return std::max(peak_live_, pool(device_).peak_live()); }

int64_t Phases::peak_held() const { return std::max(peak_held_, pool(device_).peak_held()); }

}  // namespace temper::recipes
