#include "reports/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace temper::reports {
namespace {

double round_step(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

}  // namespace

Axis make_axis(double low, double high, int count, AxisKind kind) {
  const bool steps = kind == AxisKind::kSteps;
  // Below this width neighbouring ticks would round to the same double.
  const double smallest = std::max({std::abs(low), std::abs(high), 1e-300}) * 1e-9;
  if (high - low < smallest) {
    const double margin = steps ? 1 : low == 0 ? 0.5 : std::abs(low) * 0.1;
    low -= margin;
    high += margin;
  }
  Axis axis;
  axis.step = round_step((high - low) / count);
  if (steps) axis.step = std::max(axis.step, 1.0);
  const double first = steps ? std::ceil(low / axis.step - 1e-9) : std::floor(low / axis.step + 1e-9);
  const double last = steps ? std::floor(high / axis.step + 1e-9) : std::ceil(high / axis.step - 1e-9);
  // Where the data begin, unless a tick is near.
  if (steps && first * axis.step - low > 0.45 * axis.step) axis.ticks.push_back(low);
  for (double k = first; k <= last; ++k) axis.ticks.push_back(k * axis.step);
  axis.low = steps ? low : first * axis.step;
  axis.high = steps ? high : last * axis.step;
  return axis;
}

std::string tick_label(const Axis& axis, double tick) {
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  if (largest >= 1e9 || largest < 1e-3) return fmt::format("{:.3g}", tick);
  if (largest >= 1e6 && axis.step >= 1e4) return fmt::format("{:g}M", tick / 1e6);
  if (largest >= 1e4 && axis.step >= 100) return fmt::format("{:g}k", tick / 1e3);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(axis.step) - 1e-9)), 0, 9);
  const std::string label = fmt::format("{:.{}f}", tick, digits);
  return label.find_first_not_of("-0.") == std::string::npos ? fmt::format("{:.{}f}", 0.0, digits) : label;
}

}  // namespace temper::reports
