#include "preprocessing/resample_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace temper::preprocessing {
namespace {

// The convolution of Keys (1981) with a = -1/2.
double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

double bilinear(double x) { return std::max(0.0, 1 - std::abs(x)); }

int32_t rounded(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<int32_t>(scaled + (weight < 0 ? -0.5 : 0.5));
}

}  // namespace

ResampleWeights resample_weights(int64_t from, int64_t to, Filter filter) {
  const bool cubic = filter == Filter::kBicubic;
  const double scale = static_cast<double>(from) / static_cast<double>(to), stretch = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * stretch, inverse = 1.0 / stretch;
  ResampleWeights out;
  out.taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  out.weights.resize(static_cast<size_t>(to * out.taps));
  std::vector<double> exact(static_cast<size_t>(out.taps));
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t count = std::min(static_cast<int64_t>(center + support + 0.5), from) - first;
    for (int64_t k = 0; k < count; ++k) {
      const double x = (static_cast<double>(k + first) - center + 0.5) * inverse;
      exact[static_cast<size_t>(k)] = cubic ? bicubic(x) : bilinear(x);
    }
    const double sum = std::accumulate(exact.begin(), exact.begin() + count, 0.0);
    for (int64_t k = 0; k < count; ++k)
      out.weights[static_cast<size_t>(i * out.taps + k)] = rounded(exact[static_cast<size_t>(k)] / sum);
    out.first.push_back(first);
    out.counts.push_back(count);
  }
  return out;
}

}  // namespace temper::preprocessing
