#pragma once
#include <memory>
#include <vector>

#include "recipes/loop/learners.h"

namespace temper::recipes {

// One update of all learners: of the model, or of several adapters, whose rows share every pass through it.
class TrainStep {
 public:
  explicit TrainStep(const RunSetup& setup) : setup_(setup) {}  // which must outlive it

  // Once the model is loaded, before begin().
  void prepare(const Learners& learners);
  // Begins the step on the rows that each of these learners has; the results in their order.
  std::vector<training::PendingStep> begin(const std::vector<Learner*>& learners);

 private:
  const RunSetup& setup_;
  std::unique_ptr<training::AdapterTrainer> adapters_;  // null: the model is trained
};

}  // namespace temper::recipes
