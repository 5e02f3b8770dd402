#pragma once
#include <span>
#include <vector>

#include "quant/format.h"
#include "quant/groups.h"
#include "quant/histogram.h"
#include "quant/zero_points.h"

// Searches for the amax of weights (compact, on the CPU, any floating-point dtype). Each group has one
// (quant/groups.h).
namespace temper::quant {

// What an amax is multiplied by to find a better one: from 0.25 to 4 in equal steps.
inline constexpr int64_t kNumMultipliers = 39;
float multiplier(int64_t which);

// Sums of (x - its rounding)² with amax times each multiplier, of each amax: [amax, kNumMultipliers]. Those
// of parts of a matrix add up.
std::vector<double> squared_errors(const Format& format, const Tensor& values, const Tensor& amax);
// Of integers with zero points: with both ends times each multiplier.
std::vector<double> squared_errors(const Element& element, const Tensor& values, const Bounds& bounds);
// Each amax times the multiplier with the least of these sums, the first of equals.
Tensor least_error_amax(const Tensor& amax, std::span<const double> errors);

// The magnitudes of the elements that share the amax of this number, from 0 to that amax. Values are float32.
Histogram histogram_of(const Tensor& values, const Tensor& amax, int64_t which);
// The values of those, in their range.
Histogram histogram_of(const Tensor& values, const Bounds& bounds, int64_t which);

}  // namespace temper::quant
