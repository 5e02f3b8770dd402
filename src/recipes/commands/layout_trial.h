#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "parallel/mesh_groups.h"
#include "recipes/keys/recipe.h"
#include "training/adapter_trainer.h"

namespace temper::recipes {

// What one rank trains to verify a layout: a model of that config.json with random weights, or the run's
// adapters of it, by the run's recipe, on random rows. All ranks of a mesh make one at the same time and call
// the same functions.
class LayoutTrial {
 public:
  LayoutTrial(const Json& model, const RunConfig& run, DType dtype, const parallel::MeshGroups& groups);

  std::vector<training::StepResult> step();  // one update of the model, or of each adapter
  // What the rank holds of all trained parameters, and of their gradients in the last update.
  std::vector<PlacedTensor> gradients() const;
  std::vector<PlacedTensor> weights() const;
  std::vector<PlacedTensor> held() const;  // and of the states of their optimizers

 private:
  struct Trained {
    std::string name;                          // in front of those of its parameters
    std::unique_ptr<layers::Adapter> adapter;  // null: the model itself
    std::unique_ptr<optimizers::AdamW> optimizer;
    std::vector<data::PackedRow> rows;
  };

  const RunConfig& run_;
  parallel::UpdateRanks ranks_;
  std::unique_ptr<models::Model> model_, second_;
  Recipe::Objective objective_;
  std::vector<Trained> trained_;
  std::unique_ptr<training::Trainer> trainer_;
  std::unique_ptr<training::AdapterTrainer> adapter_trainer_;
};

}  // namespace temper::recipes
