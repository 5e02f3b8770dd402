// Weights that go to another process while a run trains.
#include "base/error.h"
#include "base/log.h"
#include "recipes/loop/training_loop.h"

namespace temper::recipes {

// What diverged is not sent. A run that was resumed sends what it continues with.
void TrainingLoop::send_weights(bool resumed) {
  if (!exchange_.is_on()) return;
  for (const auto& learner : learners_) {
    const bool due = resumed ? learner->step() > 0 : exchange_.is_due(*learner);
    if (!due || !learner->stop_reason().empty()) continue;
    report_all();
    settle_if_any();
    if (!learner->stop_reason().empty()) continue;
    try {
      exchange_.send(*learner);
    } catch (const Error& error) {
      if (!collectives::is_of_all(setup_.ranks, error)) throw;
      if (setup_.config.exchange.on_error == OnSyncError::kStop || error.kind() == ErrorKind::kDefect)
        end_unsent(error);
      log_warning(fmt::format("{}; weights of update {} were not taken, the next sync will send newer ones",
                              error.what(), learner->step()));
    }
  }
}

// What is saved stands below (TrainingLoop::begin_and_train).
void TrainingLoop::end_unsent(const Error& error) {
  save_what_is_learnt();
  throw Error(fmt::format("[exchange] the weights could not be sent: {}", error.what()),
              error.kind() == ErrorKind::kDefect ? error.kind() : ErrorKind::kResources);
}

}  // namespace temper::recipes
