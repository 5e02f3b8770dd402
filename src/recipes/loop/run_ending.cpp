#include "recipes/loop/run_ending.h"

#include "base/error.h"
#include "base/text.h"
#include "recipes/loop/saved_steps.h"

namespace temper::recipes {

void RunEnding::stop_by_signal(std::string_view when) {
  checkpoints_.save_all_and_wait();
  results_.raise_errors_if_any();
  progress_.finish();
  std::vector<std::string> steps;
  for (const auto& learner : learners_)
    steps.push_back(learners_.size() == 1 ? std::to_string(learner->step())
                                          : fmt::format("{} of {}", learner->step(), learner->name()));
  throw Error(
      fmt::format("stopped by a signal {} step {}; everything is saved in {}: run the same command to resume",
                  when, join(steps, ", "), setup_.config.output),
      ErrorKind::kInterrupted);
}

void RunEnding::stop_in_evaluation(const Error& error) {
  checkpoints_.save_all_and_wait();
  throw Error(fmt::format("{}; the steps before this evaluation are saved in {}", error.what(),
                          setup_.config.output));
}

void RunEnding::stop_in_exchange(const Error& error) {
  checkpoints_.save_all_and_wait();
  throw Error(fmt::format("[exchange] the weights could not be sent: {}", error.what()),
              error.kind() == ErrorKind::kDefect ? error.kind() : ErrorKind::kResources);
}

void RunEnding::stop_by_error(const Error& error) {
  checkpoints_.finish_after(error);
  if (error.kind() != ErrorKind::kResources && error.kind() != ErrorKind::kDefect) throw;
  throw Error(fmt::format("{}\n{}", error.what(), describe_saved_steps(setup_.config)), error.kind());
}

}  // namespace temper::recipes
