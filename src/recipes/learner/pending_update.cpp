#include "recipes/learner/pending_update.h"

#include "base/clock.h"

namespace temper::recipes {

void PendingUpdate::start_clock() {
  if (begun_) return;
  last_report_ = seconds_now();
  last_rollouts_ = inputs_.setup.phases->rollout_seconds();
}

std::optional<UpdateReport> PendingUpdate::wait() {
  if (!begun_) return std::nullopt;
  auto [step, report] = std::move(*begun_);
  begun_.reset();
  report.result = step.wait();
  inputs_.recipe().judge(inputs_.config, report.result);
  const double now = seconds_now(), rollouts = inputs_.setup.phases->rollout_seconds();
  report.seconds = now - std::exchange(last_report_, now);
  const double rolled = rollouts - std::exchange(last_rollouts_, rollouts);
  if (inputs_.setup.phases->has_rollouts()) report.update_seconds = report.seconds - rolled;
  return report;
}

}  // namespace temper::recipes
