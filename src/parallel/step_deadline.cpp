#include "parallel/step_deadline.h"

#include <algorithm>

namespace temper::parallel {
namespace {

constexpr size_t kFew = 3, kMany = 50;

}  // namespace

void StepDeadline::end_step(double seconds) {
  if (seconds_.size() == kMany) seconds_.erase(seconds_.begin());
  seconds_.push_back(seconds);
  ranks_.set_deadline(kLong);
}

double StepDeadline::of_step() const {
  if (seconds_.size() < kFew) return kLong;
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return std::max(kLeast, kMedians * *middle);
}

}  // namespace temper::parallel
