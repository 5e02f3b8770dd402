#include "recipes/loop/weight_sync.h"

#include "base/error.h"
#include "base/log.h"

namespace temper::recipes {

std::vector<Learner*> WeightSync::due() const {
  std::vector<Learner*> found;
  for (const auto& learner : learners_)
    if (learner->stop_reason().empty() && exchange_.is_due(*learner)) found.push_back(learner.get());
  return found;
}

std::vector<Learner*> WeightSync::resumed() const {
  std::vector<Learner*> found;
  for (const auto& learner : learners_)
    if (exchange_.is_on() && learner->stop_reason().empty() && learner->step() > 0)
      found.push_back(learner.get());
  return found;
}

void WeightSync::send(const std::vector<Learner*>& learners) {
  for (const Learner* learner : learners) try {
      exchange_.send(*learner);
    } catch (const Error& error) {
      if (!collectives::is_of_all(setup_.ranks, error)) throw;
      if (setup_.config.exchange.on_error == OnSyncError::kStop || error.kind() == ErrorKind::kDefect)
        ending_.stop_in_exchange(error);
      log_warning(fmt::format("{}; weights of update {} were not taken, the next sync will send newer ones",
                              error.what(), learner->step()));
    }
}

}  // namespace temper::recipes
