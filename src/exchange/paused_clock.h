#pragma once
#include "base/clock.h"

namespace temper::exchange {

// What deadlines are counted in: seconds, without those in which their thread works or waits for passes and
// reads nothing. Senders are not late for that.
class PausedClock {
 public:
  double now() const { return seconds_now() - paused_; }

  // While one lives, the clock stands still; within another one it changes nothing.
  class Pause {
   public:
    explicit Pause(PausedClock& clock) : clock_(clock.is_paused_ ? nullptr : &clock), begin_(seconds_now()) {
      clock.is_paused_ = true;
    }
    ~Pause() {
      if (clock_ == nullptr) return;
      clock_->paused_ += seconds_now() - begin_;
      clock_->is_paused_ = false;
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    PausedClock* const clock_;
    const double begin_;
  };

 private:
  double paused_ = 0;  // seconds that now() leaves out
  bool is_paused_ = false;
};

}  // namespace temper::exchange
