#include "recipes/parts/critic.h"

#include "recipes/parts/run_options.h"

namespace temper::recipes {
namespace {

// Without what the run wants of the policy alone: routers are left to themselves.
training::TrainerOptions trainer_options(const TrainConfig& train, const ParallelConfig& parallel) {
  training::TrainerOptions options;
  options.max_grad_norm = train.max_grad_norm;
  options.micro_batch_tokens = train.compute.micro_batch_tokens;
  options.checkpointing = train.compute.activation_checkpointing;
  options.keep_states = train.compute.keep_delta_states;
  options.pipeline = parallel.schedule();
  return options;
}

}  // namespace

Critic::Critic(std::unique_ptr<models::Model> model, std::unique_ptr<layers::Adapter> adapter,
               const RunConfig& config, const CriticSettings& wish, const parallel::MeshGroups& groups)
    : model_(std::move(model)),
      adapter_(std::move(adapter)),
      micro_batch_tokens_(config.train.compute.micro_batch_tokens),
      lr_(wish.lr),
      optimizer_(trained(), model_->decoder.ops(), adamw_options(config.train), groups.sharing()),
      objective_(
          std::make_shared<training::ValueLearning>(model_->decoder, training::ValueOptions{wish.clip})) {
  const training::TrainerOptions options = trainer_options(config.train, config.parallel);
  if (adapter_)
    adapter_trainer_.emplace(model_->decoder, options, groups.update());
  else
    trainer_.emplace(model_->decoder, optimizer_, options, objective_, groups.update());
}

layers::ParameterStore& Critic::trained() {
  return adapter_ ? adapter_->parameters() : model_->decoder.parameters();
}

const layers::ParameterStore& Critic::trained() const {
  return adapter_ ? adapter_->parameters() : model_->decoder.parameters();
}

training::TokenValues Critic::values(const std::vector<data::PackedRow>& rows) const {
  return training::token_values(model_->decoder, adapter_.get(), rows, micro_batch_tokens_);
}

training::StepResult Critic::learn(std::vector<data::PackedRow> rows) {
  for (data::PackedRow& row : rows) row.experts.clear();  // those are the policy's
  training::StepResult result = trainer_ ? trainer_->step(rows, lr_)
                                         : adapter_trainer_
                                               ->begin({{.adapter = adapter_.get(),
                                                         .optimizer = &optimizer_,
                                                         .rows = &rows,
                                                         .lr = lr_,
                                                         .objective = objective_.get()}})
                                               .front()
                                               .wait();
  trained().release_gradients();
  return result;
}

}  // namespace temper::recipes
