#include "reports/recent_rate.h"

#include <cstddef>

namespace temper::reports {

void RecentRate::add(double amount, double seconds) {
  steps_.emplace_back(amount, seconds);
  while (steps_.size() > 1) {
    double later = 0;
    for (std::size_t i = 1; i < steps_.size(); ++i) later += steps_[i].second;
    if (later < window_) break;
    steps_.pop_front();
  }
  amount_ = seconds_ = 0;
  for (const auto& [each, took] : steps_) {
    amount_ += each;
    seconds_ += took;
  }
}

double RecentRate::per_second() const { return seconds_ > 0 ? amount_ / seconds_ : 0; }

}  // namespace temper::reports
