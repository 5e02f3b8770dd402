#pragma once
#include <vector>

#include "collectives/group.h"

namespace temper::parallel {

// How long ranks wait for each other: long while a run starts, evaluates or saves; in updates only as long as
// one may take.
class StepDeadline {
 public:
  explicit StepDeadline(collectives::Group& ranks) : ranks_(ranks) {}

  void begin_step() { ranks_.set_deadline(of_step()); }
  void end_step(double seconds);
  // max(30 s, 5 times the median update); long before there have been some.
  double of_step() const;

  static constexpr double kLong = 600, kLeast = 30, kMedians = 5;  // seconds, and their number
 private:
  collectives::Group& ranks_;
  std::vector<double> seconds_;  // of the last updates
};

}  // namespace temper::parallel
