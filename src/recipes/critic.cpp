#include "recipes/critic.h"

#include "recipes/run_setup.h"

namespace temper::recipes {
namespace {

// Without what the run wants of the policy alone: routers are left to themselves.
training::TrainerOptions trainer_options(const TrainConfig& train) {
  training::TrainerOptions options;
  options.max_grad_norm = train.max_grad_norm;
  options.micro_batch_tokens = train.micro_batch_tokens;
  options.checkpointing = train.activation_checkpointing;
  options.keep_states = train.keep_delta_states;
  return options;
}

}  // namespace

Critic::Critic(std::unique_ptr<models::Model> model, const RunConfig& config, const CriticWish& wish,
               const MeshGroups& groups)
    : model_(std::move(model)),
      micro_batch_tokens_(config.train.micro_batch_tokens),
      lr_(wish.lr),
      optimizer_(model_->decoder.parameters(), model_->decoder.ops(), adamw_options(config.train),
                 groups.sharing()),
      trainer_(model_->decoder, optimizer_, trainer_options(config.train),
               std::make_shared<training::ValueLearning>(model_->decoder, training::ValueOptions{wish.clip}),
               groups.data()) {}

training::TokenValues Critic::values(const std::vector<data::PackedRow>& rows) const {
  return training::token_values(model_->decoder, rows, micro_batch_tokens_);
}

training::StepResult Critic::learn(std::vector<data::PackedRow> rows) {
  for (data::PackedRow& row : rows) row.experts.clear();  // those are the policy's
  training::StepResult result = trainer_.step(rows, lr_);
  model_->decoder.parameters().release_gradients();
  return result;
}

}  // namespace temper::recipes
