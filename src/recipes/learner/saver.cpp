#include "recipes/learner/saver.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

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
  collectives::at_each(ranks_, "what a checkpoint is written from", [&] {
    for (Learner* learner : learners) learner->prepare_save(again, in_background_);
  });
  writing_ = learners;
  const auto write = [this, learners] {
    for (Learner* learner : learners) learner->checkpoints().write(given_up_);
  };
  if (in_background_) try {
      return files_.start(write);
    } catch (const Error& error) {
      log_warning(fmt::format("{}: training waits for the checkpoint", error.what()));
    }
  write();
  if (!in_background_) commit();
}

// Ranks meet now and then: the others wait no longer for one than their deadline.
void Saver::commit() {
  constexpr double kSeconds = 20;
  const std::vector<Learner*> learners = std::exchange(writing_, {});
  if (learners.empty()) return;
  while (ranks_.sum("checkpoints written", files_.wait_for(kSeconds) ? 1 : 0) < ranks_.size()) {
  }
  wait();
  for (Learner* learner : learners) learner->commit_save();
  const auto prune = [learners] {
    for (Learner* learner : learners) learner->checkpoints().prune();
  };
  if (!in_background_) return collectives::at_root(ranks_, "old checkpoints", prune);
  kept_.at_root([&](const collectives::Root&) { files_.start(prune); });
}

void Saver::wait() {
  collectives::at_each(ranks_, "files of checkpoints", [&] { files_.wait(); });
}

void Saver::finish() {
  commit();
  wait();
}

}  // namespace temper::recipes
