#include "recipes/learner/trained_model.h"

#include <utility>

#include "base/text.h"
#include "checkpoints/states/placed_tensors.h"
#include "models/adapter.h"
#include "parallel/replicas.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/parts/critic.h"

namespace temper::recipes {

TrainedModel::TrainedModel(const LearnerInputs& inputs, Recipe::MakeObjective make_objective)
    : inputs_(inputs) {
  layers::Decoder& model = inputs.setup.model->decoder;
  if (inputs.is_adapter()) make_adapter();
  if (make_objective != nullptr) objective_ = make_objective(inputs.for_objective());
  optimizer_ = std::make_unique<optimizers::AdamW>(
      parameters(), model.ops(), adamw_options(inputs.config.train), inputs.setup.groups->sharing());
  const training::TrainerOptions options =
      trainer_options(inputs.config, model, inputs.data.train.members().size());
  if (!adapter_)
    trainer_ =
        std::make_unique<training::Trainer>(model, *optimizer_, options, objective_, inputs.update_ranks());
}

void TrainedModel::make_adapter() {
  const models::Model& model = *inputs_.setup.model;
  const AdapterConfig& given = inputs_.config.adapters.front();
  const AdapterChoice choice = choose_adapter(given, model.decoder.parameters().table());
  adapter_ = given.from.empty() ? models::new_adapter(model, choice.lora,
                                                      static_cast<uint64_t>(inputs_.config.train.seed), "")
                                : models::load_adapter(model, source_of(given));
  adapter_->set_dropout(choice.lora.dropout);
  inputs_.log(fmt::format("adapter: {} modules, {:.2f} M parameters", adapter_->plan().targets.size(),
                          static_cast<double>(adapter_->parameters().num_elements()) / 1e6));
}

layers::ParameterStore& TrainedModel::parameters() const {
  return adapter_ ? adapter_->parameters() : inputs_.setup.model->decoder.parameters();
}

void TrainedModel::check(const std::vector<data::PackedRow>& rows) const {
  if (objective_) objective_->check(rows, inputs_.data_ranks());
}

training::PendingStep TrainedModel::begin(const std::vector<data::PackedRow>& rows, double lr) {
  return trainer_->begin(rows, lr);
}

training::AdapterShare TrainedModel::share(const std::vector<data::PackedRow>& rows, double lr) const {
  return {adapter_.get(),
          optimizer_.get(),
          &rows,
          lr,
          static_cast<uint64_t>(inputs_.config.train.seed),
          inputs_.data.train.members().size(),
          objective_.get()};
}

training::EvalResult TrainedModel::evaluate(const std::vector<data::PackedRow>& rows) const {
  return objective_
             ? objective_->evaluate(rows, adapter_.get(), inputs_.update_ranks())
             : training::evaluate(inputs_.setup.model->decoder, adapter_.get(), rows,
                                  inputs_.config.train.compute.micro_batch_tokens, inputs_.update_ranks());
}

void TrainedModel::check_replicas(const Critic* critic, int64_t step) const {
  std::vector<PlacedTensor> held = parameters().placed();
  for (const PlacedTensor& state : optimizer_->state()) held.push_back(state);
  if (critic != nullptr)
    for (PlacedTensor& state : critic->state()) {
      state.name = fmt::format("critic.{}", state.name);
      held.push_back(std::move(state));
    }
  parallel::check_replicas(inputs_.ranks(), held, step);
}

void TrainedModel::with_whole(const std::function<void(const collectives::Root&, const Whole&)>& use) const {
  checkpoints::with_whole(inputs_.ranks(), parameters().placed(), use);
}

}  // namespace temper::recipes
