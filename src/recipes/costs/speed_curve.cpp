#include "recipes/costs/speed_curve.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace temper::recipes {

double SpeedCurve::per_second(double amount) const {
  invariant(!points.empty(), "a curve has at least one point");
  const auto above = std::ranges::find_if(points, [&](const Point& point) { return point.amount >= amount; });
  if (above == points.begin()) return points.front().per_second;
  if (above == points.end()) return points.back().per_second;
  const Point &low = *(above - 1), &high = *above;
  const double share = std::log(amount / low.amount) / std::log(high.amount / low.amount);
  return low.per_second + share * (high.per_second - low.per_second);
}

}  // namespace temper::recipes
