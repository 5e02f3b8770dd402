#pragma once
#include <string>
#include <vector>

#include "recipes/learner/learner_progress.h"
#include "recipes/parts/run_curves.h"
#include "recipes/setup/exact_match.h"

namespace temper::recipes {

// How the training of a learner ended, or that it has not.
struct LearnerEnding {
  bool stopped = false, diverged = false;
  bool was_finished = false;   // before this process
  std::string reason = {};     // why it stopped
  double accuracy_after = -1;  // of answers, once they are known
};

// What is reported of a learner at its end: summary.json, the curve, and lines of the log. Rank 0's.
struct LearnerSummary {
  const LearnerInputs& inputs;
  const LearnerProgress& progress;
  const LearnerEnding& ending;
  const BatchSource& batches;
  bool has_perplexity;  // whether losses are those of tokens

  Json json(const RunCurves& curves) const;
  void write() const;  // the files; metrics.jsonl is complete
  void log_answers(const std::vector<Answer>& answers) const;
  // `saved_step`: of the last checkpoint; 0: there is none.
  void log_ending(int64_t saved_step) const;
};

}  // namespace temper::recipes
