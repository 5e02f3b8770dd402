#include "quant/amax_search.h"

#include <algorithm>
#include <cmath>

#include "base/threads/threads.h"

namespace temper::quant {
namespace {

constexpr int64_t kRowsAtOnce = 1024;  // whose sums are kept apart until they are added in their order

// Of neighbours in a row that share their factors.
double squared_error(const Format& format, std::span<const float> x, float amax) {
  double sum = 0;
  const size_t run = format.has_blocks() ? static_cast<size_t>(format.block) : x.size();
  for (size_t first = 0; first < x.size(); first += run) {
    const auto own = x.subspan(first, run);
    Factors factors;
    if (format.has_blocks()) {
      float largest = 0;
      for (const float value : own) largest = std::max(largest, std::fabs(value));
      factors = factors_of_block(format, largest, amax);
    } else {
      factors = factors_of(format, amax);
    }
    for (const float value : own) {
      const float off = dequantized(format, quantized(format, value, factors.by), factors.back) - value;
      sum += static_cast<double>(off * off);
    }
  }
  return sum;
}

double squared_error(const Element& element, std::span<const float> x, const ZeroPoint& at) {
  double sum = 0;
  for (const float value : x) {
    const float off = value_of(at, integer_of(element, at, value)) - value;
    sum += static_cast<double>(off * off);
  }
  return sum;
}

// Sums of error(run, group, which multiplier) over the runs of each group in rows, in their order.
template <class F>
std::vector<double> sums_of_groups(const Tensor& values, const Shape& shape, const F& error) {
  const Groups groups = groups_of("amax", values.shape(), shape);
  const Tensor wide = values.to(DType::kF32);
  const auto x = wide.values<float>();
  const int64_t rows = groups.experts * groups.rows, parts = groups.column_groups, width = groups.width();
  std::vector<double> errors(static_cast<size_t>(shape.numel() * kNumMultipliers));
  std::vector<double> some(static_cast<size_t>(std::min(rows, kRowsAtOnce) * parts * kNumMultipliers));
  for (int64_t from = 0; from < rows; from += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - from);
    parallel_ranges(count * parts, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = from + i / parts;
        const auto run = x.subspan(static_cast<size_t>(row * groups.columns + i % parts * width),
                                   static_cast<size_t>(width));
        for (int64_t k = 0; k < kNumMultipliers; ++k)
          some[static_cast<size_t>(i * kNumMultipliers + k)] = error(run, groups.first(row) + i % parts, k);
      }
    });
    for (int64_t i = 0; i < count * parts; ++i)
      for (int64_t k = 0; k < kNumMultipliers; ++k)
        errors[static_cast<size_t>((groups.first(from + i / parts) + i % parts) * kNumMultipliers + k)] +=
            some[static_cast<size_t>(i * kNumMultipliers + k)];
  }
  return errors;
}

// Counts the values of one group.
Histogram counted(Histogram histogram, const Tensor& values, const Shape& shape, int64_t which) {
  const Groups groups = groups_of("amax", values.shape(), shape);
  const int64_t rows = groups.rows / groups.row_groups, experts = groups.experts / groups.expert_groups;
  const int64_t width = groups.width(), part = which % groups.column_groups;
  const int64_t first_row = which / groups.column_groups % groups.row_groups * rows;
  const int64_t first_expert = which / groups.column_groups / groups.row_groups * experts;
  const auto x = values.values<float>();
  for (int64_t expert = first_expert; expert < first_expert + experts; ++expert)
    for (int64_t row = first_row; row < first_row + rows; ++row)
      histogram.count(
          x.subspan(static_cast<size_t>((expert * groups.rows + row) * groups.columns + part * width),
                    static_cast<size_t>(width)));
  return histogram;
}

}  // namespace

float multiplier(int64_t which) {
  const float step = (4.f - 0.25f) / static_cast<float>(kNumMultipliers - 1);
  if (which < kNumMultipliers / 2) return 0.25f + step * static_cast<float>(which);
  return 4.f - step * static_cast<float>(kNumMultipliers - 1 - which);
}

std::vector<double> squared_errors(const Format& format, const Tensor& values, const Tensor& amax) {
  return sums_of_groups(values, amax.shape(), [&](std::span<const float> run, int64_t group, int64_t k) {
    return squared_error(format, run, amax.data<float>()[group] * multiplier(k));
  });
}

std::vector<double> squared_errors(const Element& element, const Tensor& values, const Bounds& bounds) {
  return sums_of_groups(
      values, bounds.low.shape(), [&](std::span<const float> run, int64_t group, int64_t k) {
        return squared_error(element, run,
                             zero_point_of(element, bounds.low.data<float>()[group] * multiplier(k),
                                           bounds.high.data<float>()[group] * multiplier(k)));
      });
}

Tensor least_error_amax(const Tensor& amax, std::span<const double> errors) {
  const Tensor best = Tensor::empty(amax.shape(), DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < amax.numel(); ++i) {
    const auto own =
        errors.subspan(static_cast<size_t>(i * kNumMultipliers), static_cast<size_t>(kNumMultipliers));
    const auto least = std::min_element(own.begin(), own.end()) - own.begin();
    best.data<float>()[i] = amax.data<float>()[i] * multiplier(least);
  }
  return best;
}

Histogram histogram_of(const Tensor& values, const Tensor& amax, int64_t which) {
  return counted(Histogram(amax.data<float>()[which]), values, amax.shape(), which);
}

Histogram histogram_of(const Tensor& values, const Bounds& bounds, int64_t which) {
  const Ends ends{bounds.low.data<float>()[which], bounds.high.data<float>()[which]};
  return counted(Histogram(ends), values, bounds.low.shape(), which);
}

}  // namespace temper::quant
