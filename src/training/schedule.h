#pragma once
#include <cstdint>

namespace temper::training {

enum class ScheduleType { kConstant, kLinear, kCosine };

// The learning rate of each update, counted from 0: a linear rise over warmup_steps to peak, then constant,
// or falling linearly or by half a cosine to final_fraction · peak, which the last update has. A fall to 0
// ends one update later, so that no update is in vain.
struct Schedule {
  ScheduleType type = ScheduleType::kCosine;
  double peak = 1e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double final_fraction = 0;

  double at(int64_t step) const;
};

}  // namespace temper::training
