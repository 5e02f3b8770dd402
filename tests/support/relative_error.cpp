#include "tests/support/relative_error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor on_host(const Tensor& tensor) { return tensor.on({}).to(DType::kF32).contiguous(); }

int64_t width_of(const Tensor& tensor) { return tensor.ndim() == 0 ? 1 : tensor.dim(-1); }

bool all_finite(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

double ratio(double error, double scale) { return error == 0 ? 0 : scale == 0 ? kInfinity : error / scale; }

// f(found's values, expected's values) where they can be compared, else infinity.
template <class F>
double compare(const Tensor& found, const Tensor& expected, const F& f) {
  if (!found.defined() || !expected.defined() || found.numel() != expected.numel() ||
      width_of(found) != width_of(expected))
    return kInfinity;
  const Tensor a = on_host(found), b = on_host(expected);
  if (!all_finite(a) || !all_finite(b)) return kInfinity;
  return f(a.values<float>(), b.values<float>());
}

using Values = std::span<const float>;

double square_of_difference(Values a, Values b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

double square_of(Values a) {
  double sum = 0;
  for (const float value : a) sum += double{value} * value;
  return sum;
}

}  // namespace

double relative_error(const Tensor& found, const Tensor& expected, double floor) {
  return compare(found, expected, [&](Values a, Values b) {
    double worst = 0, scale = floor;
    for (size_t i = 0; i < a.size(); ++i) {
      worst = std::max(worst, std::fabs(double{a[i]} - b[i]));
      scale = std::max(scale, std::fabs(double{b[i]}));
    }
    return ratio(worst, scale);
  });
}

double relative_norm_error(const Tensor& found, const Tensor& expected) {
  return compare(found, expected, [](Values a, Values b) {
    return ratio(std::sqrt(square_of_difference(a, b)), std::sqrt(square_of(b)));
  });
}

double worst_row_error(const Tensor& found, const Tensor& expected) {
  const auto width = static_cast<size_t>(width_of(expected));
  return compare(found, expected, [&](Values a, Values b) {
    double worst = 0;
    for (size_t first = 0; first < a.size(); first += width)
      worst = std::max(worst, square_of_difference(a.subspan(first, width), b.subspan(first, width)));
    const auto rows = static_cast<double>(a.size() / std::max<size_t>(width, 1));
    return ratio(std::sqrt(worst), std::sqrt(square_of(b) / std::max(rows, 1.0)));
  });
}

}  // namespace temper
