#include "recipes/parts/loss_watch.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper::recipes {
namespace {

constexpr double kTimesFirst = 10;     // a loss that has exploded
constexpr int64_t kUpdatesInARow = 3;  // a single one may be of rows that the model has learned already

}  // namespace

std::vector<std::string> LossWatch::after(int64_t step, double loss, double grad_norm) {
  std::vector<std::string> warnings;
  if (!first_) first_ = loss;
  if (!said_exploded_ && loss > kTimesFirst * std::max(*first_, 1.0)) {
    said_exploded_ = true;
    warnings.push_back(
        fmt::format("the loss of step {} is {:.4g}, and the first one was {:.4g}: training has diverged; "
                    "start again with a "
                    "lower train.optimizer.lr, or more train.schedule.warmup_steps",
                    step, loss, *first_));
  }
  without_gradient_ = grad_norm == 0 ? without_gradient_ + 1 : 0;
  if (!said_no_gradient_ && without_gradient_ == kUpdatesInARow) {
    said_no_gradient_ = true;
    warnings.push_back(fmt::format(
        "the gradients of {} updates in a row, up to step {}, are 0: nothing is learned any more. "
        "If the loss is "
        "not near 0, start again with a lower train.optimizer.lr",
        kUpdatesInARow, step));
  }
  return warnings;
}

}  // namespace temper::recipes
