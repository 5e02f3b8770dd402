#include "training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace temper::training {

double Schedule::at(int64_t step) const {
  // The first update already moves: warm-up rises from peak / warmup_steps.
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (type == ScheduleType::kConstant) return peak;
  const auto span = static_cast<double>(std::max<int64_t>(total_steps - warmup_steps, 1));
  const double done = std::min(static_cast<double>(step - warmup_steps) / span, 1.0);
  const double remaining =
      type == ScheduleType::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (final_fraction + (1 - final_fraction) * remaining);
}

}  // namespace temper::training
