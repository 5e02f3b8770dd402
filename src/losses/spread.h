#pragma once
#include <cstdint>
#include <span>

namespace temper::losses {

// Of the values that are not NaN.
struct Spread {
  int64_t count = 0;
  double mean = 0;
  double deviation = 0;  // unbiased; 0 of fewer than two values
  bool any = false;      // two values differ
};

Spread spread_of(std::span<const double> values);

}  // namespace temper::losses
