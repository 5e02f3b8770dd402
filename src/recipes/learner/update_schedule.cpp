#include "recipes/learner/update_schedule.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "training/schedule.h"

namespace temper::recipes {

// An update that would read the data many times over is a mistake, and takes memory for all of it.
UpdateSchedule::UpdateSchedule(const LearnerInputs& inputs) : inputs_(inputs) {
  constexpr int64_t kMost = 100;
  const TrainConfig& train = inputs.config.train;
  const bool by_tokens = train.tokens_per_step > 0;
  const int64_t size = by_tokens ? train.tokens_per_step : train.rows_per_step;
  // An epoch has at least one packed row, and rows that are kept have a token each: most need no estimate.
  const int64_t surely = by_tokens ? inputs.data.train.size() : 1;
  if (inputs.recipe().updates_per_epoch != nullptr || size <= kMost * surely) return;
  const double updates = data::estimate_steps_per_epoch(inputs.data.train, loader_options(inputs.config));
  if (updates <= 0 || updates * kMost >= 1) return;  // training reports why no row can be used
  fail(
      "[train.{}] is {}, but an epoch has about {:.0f} {}: one update would read the data {:.0f} times; set "
      "it to {:.0f} or less",
      by_tokens ? "tokens_per_step" : "rows_per_step", size, updates * static_cast<double>(size),
      by_tokens ? "tokens" : "rows", 1 / updates, updates * static_cast<double>(size));
}

int64_t UpdateSchedule::total_steps() const {
  const RunConfig& config = inputs_.config;
  if (config.train.steps > 0) return config.train.steps;
  if (!estimated_steps_) {
    const auto updates_per_epoch = inputs_.recipe().updates_per_epoch;
    const double per_epoch = updates_per_epoch != nullptr
                                 ? updates_per_epoch(config, inputs_.data)
                                 : data::estimate_steps_per_epoch(inputs_.data.train, loader_options(config));
    const double steps = per_epoch * config.train.passes();
    if (steps > kMostSteps)
      fail(
          "[train.epochs] is {}, which makes {:.3g} updates; at most {:.0g} are possible, ask for fewer "
          "epochs",
          config.train.passes(), steps, kMostSteps);
    estimated_steps_ = std::max<int64_t>(1, std::llround(steps));
  }
  return *estimated_steps_;
}

double UpdateSchedule::lr(int64_t step) const {
  const TrainConfig& train = inputs_.config.train;
  return training::Schedule{train.schedule.type, train.optimizer.lr, train.schedule.warmup_steps,
                            std::max<int64_t>(1, total_steps() - held_updates_),
                            train.schedule.final_fraction}
      .at(made_of(step));
}

void UpdateSchedule::warn_of_keys_without_effect() const {
  const TrainConfig& train = inputs_.config.train;
  const std::string name = inputs_.name();
  if (train.steps > 0 && train.epochs) {
    // Both are the adapter's own or both are the run's: either of its own replaces both of those.
    const bool own = std::ranges::any_of(inputs_.setup.config.adapters, [&](const AdapterConfig& adapter) {
      return inputs_.is_adapter() && adapter.name == name && adapter.epochs;
    });
    log_warning_once(fmt::format("[{}] is {}, and has no effect: steps is {}; leave one of them out",
                                 own ? fmt::format("adapters.{}.epochs", name) : "train.epochs",
                                 *train.epochs, train.steps));
  }
  const int64_t warmup = train.schedule.warmup_steps;
  if (warmup <= total_steps()) return;
  log_warning(fmt::format(
      "[{}] is {}, but the run has {} updates: the learning rate never reaches its peak; set fewer",
      inputs_.is_adapter() ? fmt::format("adapters.{}.warmup_steps", name) : "train.schedule.warmup_steps",
      warmup, total_steps()));
}

void UpdateSchedule::warn_of_jump(int64_t step, const Json& state) const {
  const Json* planned = state.find("next_lr");
  if (planned == nullptr ||
      !(std::abs(lr(step) - planned->as_double()) > 1e-9 * inputs_.config.train.optimizer.lr))
    return;
  log_warning(fmt::format(
      "[{}] the learning rate jumps: update {} would have had {:.3g} as the run was configured before, and "
      "has {:.3g} now, with {} updates in all",
      inputs_.files.folder, step + 1, planned->as_double(), lr(step), total_steps()));
}

}  // namespace temper::recipes
