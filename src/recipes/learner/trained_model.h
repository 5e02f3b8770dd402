#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "collectives/at_root.h"
#include "recipes/learner/learner_inputs.h"
#include "training/adapter_trainer.h"

namespace temper::recipes {

// What a learner trains: the run's model or an adapter of it, with its objective and optimizer.
class TrainedModel {
 public:
  // Behind RunSetup::load_weights(). `inputs` must outlive it; `make_objective` may be null
  // (Recipe::objective).
  TrainedModel(const LearnerInputs& inputs, Recipe::MakeObjective make_objective);

  layers::Adapter* adapter() const { return adapter_.get(); }  // null: the model is trained
  layers::ParameterStore& parameters() const;
  optimizers::AdamW& optimizer() const { return *optimizer_; }
  const training::Trainer* trainer() const { return trainer_.get(); }  // of the whole model, or null
  bool has_objective() const { return objective_ != nullptr; }

  // These are of one update's rows, of this rank. An Error where the objective cannot judge them.
  void check(const std::vector<data::PackedRow>& rows) const;
  training::PendingStep begin(const std::vector<data::PackedRow>& rows, double lr);  // of the whole model
  training::AdapterShare share(const std::vector<data::PackedRow>& rows, double lr) const;  // of an adapter
  training::EvalResult evaluate(const std::vector<data::PackedRow>& rows) const;

  // All ranks call these. What they hold alike, also of the critic, which may be null (parallel/replicas.h):
  void check_replicas(const Critic* critic, int64_t step) const;
  // Rank 0 runs it with a function that gives a trained parameter by its place, where ranks hold parts
  // (checkpoints/states/placed_tensors.h).
  using Whole = std::function<Tensor(size_t)>;
  void with_whole(const std::function<void(const collectives::Root&, const Whole&)>& use) const;

 private:
  void make_adapter();

  const LearnerInputs& inputs_;
  std::unique_ptr<layers::Adapter> adapter_;
  std::shared_ptr<const training::Objective> objective_;
  std::unique_ptr<optimizers::AdamW> optimizer_;
  std::unique_ptr<training::Trainer> trainer_;
};

}  // namespace temper::recipes
