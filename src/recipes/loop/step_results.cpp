#include "recipes/loop/step_results.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "recipes/loop/saved_steps.h"

namespace temper::recipes {

void StepResults::collect() {
  std::vector<UpdateReport> reports;
  for (const auto& learner : learners_) try {
      if (auto report = learner->report(progress_.peak_flops())) reports.push_back(std::move(*report));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;  // of the ranks or the device
      failed_.emplace(learner.get(), error);
    }
  progress_.show(reports);
  if (!reports.empty() && reports.front().result.pipeline) profile_.add(*reports.front().result.pipeline);
}

void StepResults::raise_errors_if_any() {
  if (setup_.ranks.sum("ranks in trouble", has_errors() ? 1 : 0) > 0) raise_errors();
}

void StepResults::collect_and_raise() {
  collect();
  raise_errors_if_any();
}

void StepResults::raise_errors() {
  for (const auto& learner : learners_) try {
      collectives::at_each(setup_.ranks, "a learner's step", [&] {
        if (auto failed = failed_.extract(learner.get())) throw Error(failed.mapped());
      });
    } catch (const Error& error) {
      if (!collectives::is_of_all(setup_.ranks, error)) throw;
      drop(*learner, error, Cause::kStep);
    }
  try {
    setup_.kept_errors->raise("what one rank could not do");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput || !collectives::is_of_all(setup_.ranks, error)) throw;
    checkpoints_.finish_after(error);
    throw collectives::ErrorOfAll(fmt::format("{}\n{}", error.what(), describe_saved_steps(setup_.config)),
                                  error.kind(), setup_.ranks.size());
  }
}

void StepResults::drop(Learner& learner, const Error& error, Cause cause) {
  const bool by_data = cause == Cause::kData, was_unsaved = learner.is_unsaved();
  const auto describe_saved = [&] {
    return fmt::format(
        "the {} steps before it are saved in {}: the same command resumes when the row is right, or another "
        "one is "
        "in its place",
        learner.step(), learner.files().folder);
  };
  const bool ends_run = error.kind() != ErrorKind::kInput || learners_.size() == 1;
  if (error.kind() == ErrorKind::kInput) checkpoints_.commit();  // on all ranks
  if (!ends_run || by_data) {
    learner.stop(error.what(), by_data);
    if (by_data && learner.step() > 0) {
      checkpoints_.save_again({&learner});  // with the reason why it ended
      checkpoints_.commit();
    }
  }
  if (ends_run) {
    const bool is_saved = was_unsaved && by_data && error.kind() == ErrorKind::kInput;
    throw collectives::ErrorOfAll(
        is_saved ? fmt::format("{}; {}", error.what(), describe_saved()) : error.what(), error.kind(),
        setup_.ranks.size());
  }
  log_warning(fmt::format("[{}] {}; this adapter stops, the others continue{}", learner.name(), error.what(),
                          by_data && learner.step() > 0 ? "; " + describe_saved() : std::string()));
}

}  // namespace temper::recipes
