#pragma once
#include <optional>
#include <utility>

#include "recipes/learner/learner_inputs.h"

namespace temper::recipes {

// What is known of one update of a learner when it is done.
struct UpdateReport {
  int64_t step = 0, total_steps = 0;
  double lr = 0;
  double data_wait = 0;      // seconds that its rows were not ready
  double epoch = 0;          // passes over the data so far
  Json::Object values = {};  // of its rows (BatchSource)
  reports::TensorBoardWriter::Scalars scalars = {};
  training::StepResult result = {};
  double seconds = 0;                         // since the update before
  std::optional<double> update_seconds = {};  // without rollouts, where there are any
  double train_seconds = 0;                   // of all updates so far
  int64_t tokens = 0;                         // the same
};

// The update that the device computes while the rows of the next one are read.
class PendingUpdate {
 public:
  explicit PendingUpdate(const LearnerInputs& inputs) : inputs_(inputs) {}  // which must outlive it

  // Before the rows of an update are read: its seconds begin now, unless an update is still being computed.
  void start_clock();
  void begin(training::PendingStep step, UpdateReport known) {
    begun_.emplace(std::move(step), std::move(known));
  }
  // Waits for it; nothing when there is none. An Error where the run must not continue after its result.
  std::optional<UpdateReport> wait();
  void drop() { begun_.reset(); }

 private:
  const LearnerInputs& inputs_;
  std::optional<std::pair<training::PendingStep, UpdateReport>> begun_;
  double last_report_ = 0, last_rollouts_ = 0;  // seconds: the clock's, and Phases::rollout_seconds
};

}  // namespace temper::recipes
