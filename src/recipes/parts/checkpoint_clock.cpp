#include "recipes/parts/checkpoint_clock.h"

#include <algorithm>

#include "base/text.h"

namespace temper::recipes {
namespace {

// Checkpoints that are not configured take a twentieth of the time at most.
constexpr double kPartOfTime = 0.05;

}  // namespace

bool CheckpointClock::is_due(double now) const {
  if (left_out_ || config_.seconds() == 0) return false;
  return now - last_ >= std::max(config_.seconds(), is_default() ? took_ / kPartOfTime : 0);
}

void CheckpointClock::saved(double began, double ended) {
  took_ = ended - began;
  last_ = ended;
}

std::string CheckpointClock::describe(int64_t state_bytes) const {
  const int64_t steps = config_.every_steps.value_or(0);
  std::vector<std::string> when;
  if (steps > 0) when.push_back(steps == 1 ? "after every step" : fmt::format("every {} steps", steps));
  if (config_.seconds() > 0 && !left_out_)
    when.push_back(fmt::format("every {:g} minutes", config_.seconds() / 60));
  if (when.empty())
    return fmt::format("one at the end ({}); a run that is killed before that begins again{}",
                       format_bytes(state_bytes), left_out_ ? "" : " (checkpoint.every_steps: 0)");
  return fmt::format("{} and at the end; the last {} of {} each are kept{}", join(when, " and "),
                     config_.keep_last, format_bytes(state_bytes),
                     is_default() ? " (checkpoint.every_steps, checkpoint.every_minutes)" : "");
}

std::string CheckpointClock::leave_out(int64_t free_bytes, int64_t with_bytes, int64_t without_bytes) {
  if (!is_default() || free_bytes >= with_bytes || free_bytes < without_bytes) return "";
  left_out_ = true;
  return fmt::format(
      "[checkpoint] nothing is saved before the end: checkpoints on the way need {}, and {} are free; a run "
      "that is "
      "killed begins again. Free some space, choose another output, or set checkpoint.keep_last: 1",
      format_bytes(with_bytes), format_bytes(free_bytes));
}

}  // namespace temper::recipes
