#pragma once
#include <vector>

#include "recipes/loop/run_ending.h"

namespace temper::recipes {

// When the learners of a run are evaluated, and what happens to the run where an evaluation fails. All ranks
// call the functions.
class Evaluator {
 public:
  // All must outlive it.
  Evaluator(const RunSetup& setup, const Learners& learners, CheckpointManager& checkpoints,
            RunEnding& ending)
      : setup_(setup), learners_(learners), checkpoints_(checkpoints), ending_(ending) {}

  // The learners that are evaluated after this update: those that are done, and every eval.every_steps.
  std::vector<Learner*> due() const;
  // Evaluates them. By rewards, an evaluation that fails or is interrupted ends the run, and it and those
  // after it are pending when the run resumes.
  void evaluate(const std::vector<Learner*>& learners);
  // Evaluates, and saves, the learners whose evaluation was pending in the checkpoint.
  void evaluate_pending();

 private:
  const RunSetup& setup_;
  const Learners& learners_;
  CheckpointManager& checkpoints_;
  RunEnding& ending_;
};

}  // namespace temper::recipes
