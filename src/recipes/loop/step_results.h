#pragma once
#include <map>

#include "recipes/loop/checkpoint_manager.h"
#include "recipes/loop/learners.h"
#include "recipes/loop/progress_reporter.h"
#include "recipes/parts/step_profile.h"

namespace temper::recipes {

// What becomes of the steps that were begun. A device computes a step while the next one is prepared: its
// result is collected later, and an Error in it waits until all ranks know it. A learner that fails alone
// ends the run; of several adapters it is dropped, and the others continue.
class StepResults {
 public:
  // All must outlive it.
  StepResults(const RunSetup& setup, const Learners& learners, CheckpointManager& checkpoints,
              ProgressReporter& progress, StepProfile& profile)
      : setup_(setup),
        learners_(learners),
        checkpoints_(checkpoints),
        progress_(progress),
        profile_(profile) {}

  // Waits for the steps that were begun last, if they were not collected, writes their metrics and shows the
  // progress. An Error in the input, such as a loss that diverges, is kept for raise_errors(); others are
  // thrown.
  void collect();
  bool has_errors() const { return !failed_.empty() || setup_.kept_errors->any(); }  // of this rank

  // All ranks call it, with or without errors of their own: drops the learners that failed on any rank, or
  // throws the Error that ends the run.
  void raise_errors();
  void raise_errors_if_any();  // the same; asks first whether a rank has errors
  // Collects, and raises the errors that there are.
  void collect_and_raise();

  // Why a learner cannot continue.
  enum class Cause {
    kData,  // a row: what was learned before it is saved, and training can resume with a corrected row
    kStep,  // the last step diverged: the weights in memory are worthless
  };
  // Stops the learner, or throws `error` where the run ends with it. All ranks call it with the same Error.
  void drop(Learner& learner, const Error& error, Cause cause);

 private:
  const RunSetup& setup_;
  const Learners& learners_;
  CheckpointManager& checkpoints_;
  ProgressReporter& progress_;
  StepProfile& profile_;
  std::map<const Learner*, Error> failed_;
};

}  // namespace temper::recipes
