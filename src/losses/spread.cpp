#include "losses/spread.h"

#include <cmath>

namespace temper::losses {

Spread spread_of(std::span<const double> values) {
  Spread out;
  double sum = 0, squares = 0, first = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    if (out.count++ == 0) first = value;
    out.any = out.any || value != first;
    sum += value;
  }
  if (out.count == 0) return out;
  out.mean = sum / static_cast<double>(out.count);
  if (!out.any) return out;
  for (const double value : values)
    if (!std::isnan(value)) squares += (value - out.mean) * (value - out.mean);
  out.deviation = std::sqrt(squares / static_cast<double>(out.count - 1));
  return out;
}

}  // namespace temper::losses
