#pragma once
#include <vector>

namespace temper::recipes {

// How fast pieces of work of one kind are done, by their size: small ones fill a device less.
struct SpeedCurve {
  struct Point {
    double amount = 0;      // floating-point operations, or bytes
    double per_second = 0;  // of these
  };
  std::vector<Point> points = {};  // by amount, which grows; at least one

  // Between two points the speed changes evenly with the logarithm of the amount; outside it is that of the
  // nearest point.
  double per_second(double amount) const;
  double seconds(double amount) const { return amount / per_second(amount); }
};

}  // namespace temper::recipes
