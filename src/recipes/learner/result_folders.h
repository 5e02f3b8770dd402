#pragma once
#include <optional>
#include <string>

#include "recipes/learner/trained_model.h"

namespace temper::recipes {

// The folders of weights that a learner leaves: the result, the best of its evaluations, and its critic.
class ResultFolders {
 public:
  // Both must outlive it. `ending`: a token at which generation stops, too (training_stop_token.h).
  ResultFolders(const LearnerInputs& inputs, const TrainedModel& trained, std::optional<int32_t> ending)
      : inputs_(inputs), trained_(trained), ending_(ending) {}

  // Rank 0, in TrainedModel::with_whole().
  void save(const std::string& folder, const TrainedModel::Whole& whole) const;
  // All ranks.
  void save_best() const;
  void save_critic(const Critic& critic) const;

 private:
  void keep_template(const std::string& folder) const;

  const LearnerInputs& inputs_;
  const TrainedModel& trained_;
  std::optional<int32_t> ending_;
};

}  // namespace temper::recipes
