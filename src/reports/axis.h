#pragma once
#include <string>
#include <vector>

namespace temper::reports {

// A linear axis from `low` to `high` with ticks at round numbers (1, 2 or 5 times a power of ten).
struct Axis {
  double low = 0;
  double high = 1;
  double step = 1;
  std::vector<double> ticks;

  double fraction(double value) const { return (value - low) / (high - low); }
};

enum class AxisKind {
  kSteps,   // ends where the data end; ticks at integers
  kValues,  // ends at ticks
};

// Covers [low, high] with about `count` ticks. A single value gets room on both sides.
Axis make_axis(double low, double high, int count, AxisKind kind);

// With as many digits as tell two ticks apart: "0.25", "1500", "20k".
std::string tick_label(const Axis& axis, double tick);

}  // namespace temper::reports
