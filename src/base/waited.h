#pragma once
#include <algorithm>

#include "base/clock.h"

namespace temper {

// Seconds that somebody has waited who looks again and again. Where he could not look for long, because the
// machine slept or the process was stopped, what he waits for could not come either: that counts as one look.
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
