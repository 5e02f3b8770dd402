#pragma once
#include <memory>
#include <vector>

#include "recipes/grpo/grpo_keys.h"
#include "recipes/grpo/sample_rows.h"
#include "recipes/parts/critic.h"
#include "recipes/setup/recipe_inputs.h"

namespace temper::recipes {

// What the models say of answers before updates learn from them: log-probabilities by the weights that
// sampled and by the reference, and the critic's values.
class Scorer {
 public:
  // Reads the reference and the critic, where the loss has them.
  explicit Scorer(const BatchInputs& inputs);

  // Of every target of the rows, into the passages of their samples: old and reference log-probabilities,
  // values and Passage::value_behind, as far as the loss reads them. All ranks call it.
  void score(const SampleRows& rows) const;
  // Whether later updates of the rollout read the scores, when the weights that sampled are gone.
  bool are_kept() const { return keys_.updates() > 1; }
  Critic* critic() const { return critic_.get(); }  // null: the loss has none

 private:
  std::vector<float> log_probs(const layers::Decoder& model, const layers::Adapter* adapter,
                               const SampleRows& rows) const;

  const RunConfig& config_;
  const GrpoKeys& keys_;
  const layers::Decoder& model_;
  const layers::Adapter* adapter_;
  std::shared_ptr<const models::Model> other_reference_;  // null: none is read, or it is the model itself
  std::unique_ptr<Critic> critic_;
};

}  // namespace temper::recipes
