#pragma once
#include <vector>

#include "recipes/learner/weight_exchange.h"
#include "recipes/loop/run_ending.h"

namespace temper::recipes {

// When the weights of a run are sent to another process, such as one that serves them, and what happens to
// the run where that process does not take them. All ranks call the functions.
class WeightSync {
 public:
  // All must outlive it.
  WeightSync(const RunSetup& setup, const Learners& learners, RunEnding& ending)
      : setup_(setup), learners_(learners), ending_(ending), exchange_(setup) {}

  void connect() const {
    exchange_.check_receivers();
  }  // before training; an Error where no process takes weights
  // The learners whose weights are sent after this update, or, where a run resumes, with what it continues:
  // all that have been updated. Never one that was stopped.
  std::vector<Learner*> due(bool resumed) const;
  // Sends them. With exchange.on_error: stop, or where the values differ, an Error ends the run; otherwise it
  // is a warning.
  void send(const std::vector<Learner*>& learners);

 private:
  const RunSetup& setup_;
  const Learners& learners_;
  RunEnding& ending_;
  WeightExchange exchange_;
};

}  // namespace temper::recipes
