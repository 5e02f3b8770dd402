#pragma once
#include <memory>
#include <vector>

#include "layers/adapter.h"
#include "models/model.h"
#include "optimizers/adamw.h"
#include "parallel/mesh_groups.h"
#include "recipes/keys/critic_settings.h"
#include "recipes/keys/run_config.h"
#include "training/adapter_trainer.h"
#include "training/objectives/value_learning.h"
#include "training/trainer.h"

namespace temper::recipes {

// A second model of a run, which learns what answers are worth while the first one learns to give them. It is
// trained in full, or by an adapter of its own and a copy of its head (CriticSettings::lora), with an
// optimizer and a learning rate of its own and the run's other settings. All ranks of the run have it and
// call the same functions; its updates are those of one rank.
class Critic {
 public:
  // `model` gives values, and is divided as the run's is; `adapter`, of that model, is what is trained, or
  // (null) all of it is.
  Critic(std::unique_ptr<models::Model> model, std::unique_ptr<layers::Adapter> adapter,
         const RunConfig& config, const CriticSettings& wish, const parallel::MeshGroups& groups);

  training::TokenValues values(const std::vector<data::PackedRow>& rows) const;
  // One update. Its gradients are freed, so that they do not take memory in addition to the learner's.
  training::StepResult learn(std::vector<data::PackedRow> rows);

  // What a checkpoint has of it, and the rest once these tensors were overwritten (optimizers::AdamW).
  std::vector<PlacedTensor> state() const { return optimizer_.state(); }
  int64_t steps() const { return optimizer_.steps(); }
  void restored(int64_t steps) { optimizer_.restored(steps); }
  const models::Model& model() const { return *model_; }
  const layers::Adapter* adapter() const { return adapter_.get(); }  // null: trained in full
  const layers::ParameterStore& trained() const;

 private:
  layers::ParameterStore& trained();

  std::unique_ptr<models::Model> model_;
  std::unique_ptr<layers::Adapter> adapter_;
  int64_t micro_batch_tokens_;
  double lr_;
  optimizers::AdamW optimizer_;
  std::shared_ptr<const training::Objective> objective_;
  std::optional<training::Trainer> trainer_;                 // of the whole model,
  std::optional<training::AdapterTrainer> adapter_trainer_;  // or of the adapter
};

}  // namespace temper::recipes
