#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/moments.h"

namespace temper::training {

// What the ranks of a pipeline's stages tell of the passes of an update, added up.
struct PipelineResult {
  double computing = 0;  // seconds of passes, without the transfers between them
  double longest = 0;    // seconds of the rank that takes longest, from its first action to its last one
  double planned = 0;    // shares of time without work by the schedule's timeline (parallel::PipelinePlan)
  int64_t ranks = 0;

  void add(const PipelineResult& other) {
    computing += other.computing;
    longest = std::max(longest, other.longest);
    planned += other.planned;
    ranks += other.ranks;
  }
  // Of the ranks' time until all are done, the share in which they do not compute: they wait for another
  // stage, or for a tensor on its way.
  double waiting_share() const {
    return longest > 0 ? 1 - computing / (longest * static_cast<double>(ranks)) : 0;
  }
  double planned_share() const { return ranks > 0 ? planned / static_cast<double>(ranks) : 0; }
};

// The times of one rank, in the order of its device's work, of which nothing waits for them.
class StageTimes {
 public:
  explicit StageTimes(Device device) : device_(device) {}

  void start(double planned_share);
  void start_waiting() { transfers_.emplace_back(mark(device_), nullptr); }
  void stop_waiting() { transfers_.back().second = mark(device_); }
  void stop() { passes_.second = mark(device_); }
  PipelineResult wait() const;  // until the device has come to the end

 private:
  using Interval = std::pair<std::shared_ptr<const Moment>, std::shared_ptr<const Moment>>;

  Device device_;
  double planned_share_ = 0;
  Interval passes_;
  std::vector<Interval> transfers_;
};

}  // namespace temper::training
