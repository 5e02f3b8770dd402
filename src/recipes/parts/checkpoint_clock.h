#pragma once
#include <cstdint>
#include <string>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

// When checkpoints are due by time. Rank 0 asks it, for all ranks.
class CheckpointClock {
 public:
  CheckpointClock(const CheckpointConfig& config, double now) : config_(config), last_(now) {}

  bool is_due(double now) const;
  void saved(double began, double ended);  // a checkpoint, whatever it was due by; seconds of the clock

  // For the run's start: what is saved when. `state_bytes`: of one checkpoint.
  std::string describe(int64_t state_bytes) const;
  // If checkpoints during the run are not configured, and the disk has room only for a run without them, none
  // are due any more, and the returned sentence says so; otherwise it is empty.
  std::string leave_out(int64_t free_bytes, int64_t with_bytes, int64_t without_bytes);
  bool is_left_out() const { return left_out_; }

 private:
  bool is_default() const { return !config_.every_steps && !config_.every_minutes; }

  CheckpointConfig config_;
  double last_;      // when the last one was complete, or the run began
  double took_ = 0;  // seconds that the run waited for it
  bool left_out_ = false;
};

}  // namespace temper::recipes
