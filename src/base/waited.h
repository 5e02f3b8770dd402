#pragma once
#include <algorithm>

#include "base/clock.h"

namespace temper {

// Seconds that a polling loop has waited. If it could not poll for long, because the machine slept or the
// process was stopped, the event that it waits for could not occur either: that time counts as one poll.
class Waited {
 public:
  // At most kLook a call more than at the last one.
  double seconds() {
    const double now = seconds_now();
    waited_ += std::min(now - last_, kLook);
    last_ = now;
    return waited_;
  }

  static constexpr double kLook = 1;

 private:
  double last_ = seconds_now(), waited_ = 0;
};

}  // namespace temper
