#include "recipes/saver.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "collectives/at_root.h"

namespace temper::recipes {

Saver::~Saver() { given_up_ = true; }

void Saver::save(const std::vector<Learner*>& learners, bool again) {
  if (learners.empty()) return;
  const double start = seconds_now();
  const bool waits = is_under_way() && !is_written();
  finish();
  if (waits)
    log_info(fmt::format("the checkpoint of step {} waited {} for the one before it to be written",
                         learners.front()->step(), format_duration(seconds_now() - start)));
  for (Learner* learner : learners) learner->prepare_save(again, beside_);
  writing_ = learners;
  const auto write = [this, learners] {
    for (Learner* learner : learners) learner->write_save(given_up_);
  };
  if (beside_) return files_.start(write);
  write();
  commit();
}

// Ranks meet now and then: the others wait no longer for one than their deadline.
void Saver::commit() {
  constexpr double kSeconds = 20;
  const std::vector<Learner*> learners = std::exchange(writing_, {});
  if (learners.empty()) return;
  while (ranks_.sum("checkpoints written", files_.wait_for(kSeconds) ? 1 : 0) < ranks_.size()) {
  }
  files_.wait();
  for (Learner* learner : learners) learner->commit_save();
  const auto prune = [learners] {
    for (const Learner* learner : learners) learner->prune();
  };
  if (!beside_) return collectives::at_root(ranks_, "old checkpoints", prune);
  if (ranks_.rank() == 0) files_.start(prune);
}

void Saver::finish() {
  commit();
  files_.wait();
}

}  // namespace temper::recipes
