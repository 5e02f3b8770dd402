// How a run ends before its last update: what is saved, and what is said.
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "recipes/training_loop.h"

namespace temper::recipes {

// A checkpoint that was being written is not lost, where no other rank must agree.
void TrainingLoop::name_what_is_written() {
  if (!setup_.ranks.is_alone()) return;
  try {
    saver_.finish();
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

std::string TrainingLoop::what_is_saved() const {
  std::vector<std::string> lines;
  for (const auto& learner : learners_)
    lines.push_back(learner->saved_step() == 0
                        ? fmt::format("Nothing of this run is saved in {}", learner->files().folder)
                        : fmt::format("Step {} is saved in {}: run the same command to resume from it",
                                      learner->saved_step(), learner->files().folder));
  return join(lines, "\n");
}

// Nothing that was learnt is lost. All ranks call it.
void TrainingLoop::save_what_is_learnt() {
  std::vector<Learner*> unsaved;
  for (const auto& learner : learners_)
    if (learner->stop_reason().empty() && learner->is_unsaved()) unsaved.push_back(learner.get());
  saver_.save(unsaved);
  saver_.finish();
}

// Of a rollout under way the answers that are judged are in rollouts.jsonl.
void TrainingLoop::end_interrupted(std::string_view when) {
  save_what_is_learnt();
  if (progress_) progress_->finish();
  std::vector<std::string> steps;
  for (const auto& learner : learners_)
    steps.push_back(learners_.size() == 1 ? std::to_string(learner->step())
                                          : fmt::format("{} of {}", learner->step(), learner->name()));
  throw Error(
      fmt::format("stopped by a signal {} step {}; everything is saved in {}: run the same command to resume",
                  when, join(steps, ", "), files_.folder),
      ErrorKind::kInterrupted);
}

// A learner that is alone ends the run; of several, the others continue. After a step that diverged there is
// nothing to save.
void TrainingLoop::lose(Learner& learner, const Error& error, bool by_data) {
  const bool learnt = learner.is_unsaved();
  const auto kept = [&] {
    return fmt::format(
        "the {} steps before it are saved in {}: the same command resumes when the row is right, or another "
        "one is "
        "in its place",
        learner.step(), learner.files().folder);
  };
  const bool ends_all = error.kind() != ErrorKind::kInput || learners_.size() == 1;
  if (error.kind() == ErrorKind::kInput) saver_.commit();  // on all ranks
  if (!ends_all || by_data) {
    learner.stop(error.what(), by_data);
    if (by_data && learner.step() > 0) {
      saver_.save({&learner}, true);  // the state says why the run ended
      saver_.commit();
    }
  }
  if (ends_all) {
    if (!learnt || !by_data || error.kind() != ErrorKind::kInput) throw error;
    throw Error(fmt::format("{}; {}", error.what(), kept()), error.kind());
  }
  log_warning(fmt::format("[{}] {}; this adapter stops, the others continue{}", learner.name(), error.what(),
                          by_data && learner.step() > 0 ? "; " + kept() : std::string()));
}

void TrainingLoop::fail_if_any_was_lost() const {
  std::vector<std::string> lost = refused_;
  for (const auto& learner : learners_)
    if (!learner->stop_reason().empty())
      lost.push_back(
          fmt::format("{} after step {}: {}", learner->name(), learner->step(), learner->stop_reason()));
  if (lost.empty()) return;
  fail(
      "[adapters] {} of {} stopped early, the others are done:\n  {}\nCorrect the rows in place (keep "
      "their number) or set data.on_bad_row: skip, and run the same command to resume. With other settings "
      "give the adapter another name; its key from starts from the saved adapter",
      lost.size(), learners_.size() + refused_.size(), join(lost, "\n  "));
}

}  // namespace temper::recipes
