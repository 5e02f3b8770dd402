// How a run ends before its last update: what is saved, and what is said.
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "collectives/at_root.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/loop/training_loop.h"

namespace temper::recipes {
namespace {

constexpr const char* kStops =
    "\ntemper: a signal: stopping after this step, and saving (Ctrl-\\ ends at once, and saves nothing)\n";

}  // namespace

void TrainingLoop::train_and_finish(const std::vector<ops::ModuleKernel>& bound) {
  try {
    {
      const StopSignals signals(is_root() ? kStops : nullptr, true);
      send_weights(true);
      train(signals);
      saver_.finish();
      settle_if_any();
    }
    check_kernels(bound);
    for (const auto& learner : learners_) learner->finish();
    settle_if_any();
  } catch (const Error& error) {
    name_what_is_written(error);
    // The device may be lost, and nothing more can be saved.
    if (error.kind() != ErrorKind::kResources && error.kind() != ErrorKind::kDefect) throw;
    throw Error(fmt::format("{}\n{}", error.what(), what_is_saved(setup_.config)), error.kind());
  }
}

// A checkpoint that was being written is not lost, where all ranks can agree on its name.
void TrainingLoop::name_what_is_written(const Error& error) {
  if (!collectives::is_of_all(setup_.ranks, error)) return;
  try {
    saver_.finish();
  } catch (const Error& other) {
    log_warning(other.what());
  }
}

std::string what_is_saved(const RunConfig& config) {
  std::vector<std::string> lines;
  const auto add = [&](const RunConfig& of) {
    const RunFiles files{of.output};
    const std::vector<checkpoints::StateInfo> states = checkpoints::list_states(files.states());
    lines.push_back(states.empty()
                        ? fmt::format("Nothing of this run is saved in {}", files.folder)
                        : fmt::format("Step {} is saved in {}: run the same command to resume from it",
                                      states.back().step, files.folder));
  };
  for (const AdapterConfig& adapter : config.adapters) add(run_of_adapter(config, adapter));
  if (config.adapters.empty()) add(config);
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
  settle_if_any();
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

void TrainingLoop::settle_if_any() {
  if (setup_.ranks.sum("ranks in trouble", has_trouble() ? 1 : 0) > 0) settle();
}

void TrainingLoop::settle() {
  for (const auto& learner : learners_) try {
      collectives::at_each(setup_.ranks, "a learner's step", [&] {
        if (auto failed = failed_.extract(learner.get())) throw Error(failed.mapped());
      });
    } catch (const Error& error) {
      if (!collectives::is_of_all(setup_.ranks, error)) throw;
      lose(*learner, error, false);
    }
  try {
    setup_.kept_errors->raise("what one rank could not do");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput || !collectives::is_of_all(setup_.ranks, error)) throw;
    name_what_is_written(error);
    throw collectives::ErrorOfAll(fmt::format("{}\n{}", error.what(), what_is_saved(setup_.config)),
                                  error.kind(), setup_.ranks.size());
  }
}

// A learner that is alone ends the run; of several, the others continue. After a step that diverged there is
// nothing to save. All ranks call it, with the same Error.
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
    const bool says = learnt && by_data && error.kind() == ErrorKind::kInput;
    throw collectives::ErrorOfAll(says ? fmt::format("{}; {}", error.what(), kept()) : error.what(),
                                  error.kind(), setup_.ranks.size());
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
