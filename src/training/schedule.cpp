#include "training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace temper::training {

double Schedule::at(int64_t step) const {
  // The first update already moves: warm-up rises from peak / warmup_steps.
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (type == ScheduleType::kConstant) return peak;
  // The last update has what the schedule falls to, unless that is 0, with which it would do nothing.
  const int64_t falling = total_steps - warmup_steps - (final_fraction > 0 ? 1 : 0);
  const auto span = static_cast<double>(std::max<int64_t>(falling, 1));
  const double done = std::min(static_cast<double>(step - warmup_steps) / span, 1.0);
  const double remaining =
      type == ScheduleType::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (final_fraction + (1 - final_fraction) * remaining);
}

}  // namespace temper::training
