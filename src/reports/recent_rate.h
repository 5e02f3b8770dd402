#pragma once
#include <deque>
#include <utility>

namespace temper::reports {

// What is done in a second, as the mean over the latest steps: as many as took `window` seconds, at least
// one.
class RecentRate {
 public:
  explicit RecentRate(double window = 10) : window_(window) {}

  void add(double amount, double seconds);  // of a step
  double per_second() const;                // 0 before any step that took time

 private:
  double window_, amount_ = 0, seconds_ = 0;
  std::deque<std::pair<double, double>> steps_;
};

}  // namespace temper::reports
