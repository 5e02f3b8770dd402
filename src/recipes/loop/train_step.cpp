#include "recipes/loop/train_step.h"

#include "recipes/parts/run_options.h"

namespace temper::recipes {

void TrainStep::prepare(const Learners& learners) {
  if (!learners.are_adapters()) return;
  const layers::Decoder& model = setup_.model->decoder;
  adapters_ = std::make_unique<training::AdapterTrainer>(model, trainer_options(setup_.config, model, 1),
                                                         setup_.groups->update());
}

std::vector<training::PendingStep> TrainStep::begin(const std::vector<Learner*>& learners) try {
  std::vector<training::PendingStep> pending;
  Learner& first = *learners.front();
  if (first.is_held()) {  // which is alone
    pending.push_back(first.begin_held());
    return pending;
  }
  if (!adapters_) {
    pending.push_back(first.begin_alone());
    return pending;
  }
  std::vector<training::AdapterShare> shares;
  for (const Learner* learner : learners) shares.push_back(learner->share());
  return adapters_->begin(shares);
} catch (...) {
  setup_.groups->end_overlap();
  throw;
}

}  // namespace temper::recipes
