#pragma once
#include <string_view>

#include "recipes/loop/step_results.h"

namespace temper::recipes {

// How a run ends before its last update: what is still saved, and the Error that tells the user of it. All
// ranks call the functions.
class RunEnding {
 public:
  // All must outlive it.
  RunEnding(const RunSetup& setup, const Learners& learners, CheckpointManager& checkpoints,
            StepResults& results, ProgressReporter& progress)
      : setup_(setup),
        learners_(learners),
        checkpoints_(checkpoints),
        results_(results),
        progress_(progress) {}

  // By a signal; `when` comes before the step: "after". Answers of an unfinished rollout whose rewards are
  // known are in rollouts.jsonl.
  [[noreturn]] void stop_by_signal(std::string_view when);
  // By an evaluation that failed, which is made up for when the run resumes.
  [[noreturn]] void stop_in_evaluation(const Error& error);
  // By weights that the other process did not take.
  [[noreturn]] void stop_in_exchange(const Error& error);
  // By an Error in training, from the handler that has caught it: completes a checkpoint that is being
  // written, and says what is saved where nothing more could be, because a device or a rank was lost.
  [[noreturn]] void stop_by_error(const Error& error);

 private:
  const RunSetup& setup_;
  const Learners& learners_;
  CheckpointManager& checkpoints_;
  StepResults& results_;
  ProgressReporter& progress_;
};

}  // namespace temper::recipes
