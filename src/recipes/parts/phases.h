#pragma once
#include "collectives/group.h"
#include "device/memory.h"

namespace temper::recipes {

// What rollouts and updates take of a run, whose device they have by turns: seconds, and memory. While it is
// used, the pool's own peaks are those of one phase; those of the whole run are here.
class Phases {
 public:
  explicit Phases(Device device) : device_(device) {}

  // What was before it, saves and evaluations among them, is no part of either phase.
  void begin_rollout() { end_phase(); }
  // The most bytes in use during it, of the rank whose device had most. All of these ranks call it.
  int64_t end_rollout(collectives::Group& ranks);
  void end_update(collectives::Group& ranks);  // nothing where the run has no rollouts
  int64_t update_bytes() const {
    return update_bytes_;
  }  // the same of the last update, with what leads to it

  void add_rollout_seconds(double seconds) { rollout_seconds_ += seconds; }
  bool has_rollouts() const { return has_rollouts_; }
  double rollout_seconds() const { return rollout_seconds_; }  // all that passed for rollouts, in no update

  // Of the pool since the run began.
  MemoryUsage usage() const;
  int64_t peak_live() const;
  int64_t peak_held() const;

 private:
  int64_t end_phase();

  Device device_;
  bool has_rollouts_ = false;
  double rollout_seconds_ = 0;
  int64_t update_bytes_ = 0, peak_live_ = 0, peak_held_ = 0;
  MemoryUsage before_{};  // peaks of phases that are over
};

}  // namespace temper::recipes
