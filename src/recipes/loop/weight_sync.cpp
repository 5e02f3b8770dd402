#include "recipes/loop/weight_sync.h"

#include "base/error.h"
#include "base/log.h"

namespace temper::recipes {

std::vector<Learner*> WeightSync::due(bool resumed) const {
  std::vector<Learner*> found;
  for (const auto& learner : learners_) {
    const bool is_due = resumed ? exchange_.is_on() && learner->step() > 0 : exchange_.is_due(*learner);
    if (is_due && learner->stop_reason().empty()) found.push_back(learner.get());
  }
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
