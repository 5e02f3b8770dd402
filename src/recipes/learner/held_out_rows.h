#pragma once
#include <optional>
#include <vector>

#include "recipes/learner/learner_metrics.h"
#include "recipes/learner/trained_model.h"
#include "recipes/setup/exact_match.h"

namespace temper::recipes {

// What the held-out rows (data.eval) say of a learner: a loss, or what answers to their questions are worth.
class HeldOutRows {
 public:
  // Both must outlive it. `ending`: a token with which answers end besides (training_stop_token.h).
  HeldOutRows(const LearnerInputs& inputs, const TrainedModel& trained, std::optional<int32_t> ending)
      : inputs_(inputs), trained_(trained), ending_(ending) {}

  // All ranks call these. For losses, once, before evaluate():
  void read();
  // By the recipe's own measure, where its source of batches has one, otherwise by the loss.
  BatchSource::Judged evaluate(BatchSource& source) const;
  // The share of right answers, on rank 0, and where ranks divide the model on all of them; otherwise -1.
  // `when`: "before" training, for a line of the log.
  double answer(const char* when);
  // The same after training, as the folder's finished run had it where it was asked the same; else -1.
  double known_accuracy() const;
  const std::vector<Answer>& answers() const { return answers_; }

 private:
  const LearnerInputs& inputs_;
  const TrainedModel& trained_;
  std::optional<int32_t> ending_;
  std::vector<data::PackedRow> rows_;  // of this rank
  std::vector<Answer> answers_;        // the last ones
};

}  // namespace temper::recipes
