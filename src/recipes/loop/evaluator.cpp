#include "recipes/loop/evaluator.h"

#include "base/error.h"
#include "collectives/at_root.h"

namespace temper::recipes {

std::vector<Learner*> Evaluator::due() const {
  return learners_.due([](const RunConfig& config) { return config.eval.every_steps; });
}

void Evaluator::evaluate(const std::vector<Learner*>& learners) {
  size_t evaluated = 0;
  try {
    for (; evaluated < learners.size(); ++evaluated) learners[evaluated]->evaluate();
  } catch (const collectives::GroupBroken&) {
    throw;
  } catch (const Error& caught) {
    if (!recipe_of(setup_.config).rollouts) throw;
    const Error error = collectives::caught_by_all(setup_.ranks, "an evaluation that cannot be had", caught);
    const bool interrupted = error.kind() == ErrorKind::kInterrupted;
    if (error.kind() != ErrorKind::kInput && !interrupted) throw;
    // A reward that fails on all ranks, for example.
    for (; evaluated < learners.size(); ++evaluated) learners[evaluated]->set_pending_evaluation();
    if (interrupted) ending_.stop_by_signal("in the evaluation after");
    ending_.stop_in_evaluation(error);
  }
}

void Evaluator::evaluate_pending() {
  std::vector<Learner*> pending;
  for (const auto& learner : learners_)
    if (learner->has_pending_evaluation()) pending.push_back(learner.get());
  evaluate(pending);
  checkpoints_.save_again(pending);
}

}  // namespace temper::recipes
