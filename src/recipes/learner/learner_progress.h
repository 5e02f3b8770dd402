#pragma once
#include "recipes/learner/pending_update.h"

namespace temper::recipes {

// What a resumed run continues with, besides tensors and the position in the data.
struct LearnerProgress {
  int64_t step = 0, tokens = 0;
  double train_seconds = 0;
  std::string started = {};  // the date
  double accuracy_before = -1;
  double best_loss = -1;
  int64_t best_step = -1;
  double last_loss = 0;
  // An evaluation that is not done by the time of the next checkpoint is done when the run resumes.
  bool pending_evaluation = false;

  void add(UpdateReport& report);  // which gets the sums of all updates
  bool keep_if_best(double loss);  // of the evaluation after the last update; whether it is the least so far
  Json::Object to_json() const;    // without a pending evaluation, with the program that writes it
  static LearnerProgress of(const Json& state);
};

}  // namespace temper::recipes
