#pragma once
#include <optional>
#include <vector>

#include "recipes/learner/pending_update.h"
#include "reports/progress.h"

namespace temper::recipes {

// The figures of a progress line from the reports of a step, one of each learner that had a part in it. Of
// several adapters: steps, epoch and learning rate of the one with the most steps, the largest norm of
// gradients, and means of losses, rewards, margins and accuracies. Rates and memory are not filled in.
// `last_reward` is the mean reward of the newest rollout, which later updates from that rollout show, too.
reports::StepReport progress_line(const std::vector<UpdateReport>& reports,
                                  std::optional<double>& last_reward);

// Sums over the learners of a step.
struct StepWork {
  double tokens = 0, flops = 0;
  double seconds = 0;  // the longest, since they have them at the same time
};
StepWork work_of(const std::vector<UpdateReport>& reports);

}  // namespace temper::recipes
