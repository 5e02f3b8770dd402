// Searches for both ends of the ranges of integers with zero points.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "quant/amax_search.h"
#include "quant/number_format.h"

namespace temper::quant {
namespace {

constexpr Element kInt4 = integer_element(4, false, false);

// Mostly small and above 0, with some far below it.
Tensor lopsided(const Shape& shape) {
  const Tensor values = Tensor::empty(shape, DType::kF32, MemoryTag::kData);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& value : values.values<float>())
    value = random() % 50 == 0 ? -3 * std::fabs(normal(random)) : 0.4f + 0.3f * normal(random);
  return values;
}

// In double precision, except the step, which is a float32.
double error_of(std::span<const float> values, double low, double high) {
  const double step = static_cast<float>((high - low) / 15), zero = -8 - std::nearbyint(low / step);
  double sum = 0;
  for (const float x : values) {
    const double code = std::clamp(std::nearbyint(x / step) + zero, -8., 7.);
    sum += std::pow((code - zero) * step - x, 2);
  }
  return sum;
}

TEST(RangeSearch, BothEndsAreMultipliedByWhatHasTheLeastError) {
  const Tensor values = lopsided({3, 4, 64});
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{3, 1, 1}, Shape{3, 4, 1}, Shape{3, 4, 2}, Shape{1, 2, 1}}) {
    SCOPED_TRACE(to_string(shape));
    const Bounds ends = bounds_of(values, shape);
    const std::vector<double> errors = squared_errors(kInt4, values, ends);
    const Tensor low = least_error_amax(ends.low, errors), high = least_error_amax(ends.high, errors);
    const Groups groups = groups_of("", values.shape(), shape);
    int narrower = 0;
    for (int64_t which = 0; which < low.numel(); ++which) {
      std::vector<float> own;
      for (int64_t i = 0; i < values.numel(); ++i)
        if (groups.first(i / 64) + i % 64 / groups.width() == which) own.push_back(values.data<float>()[i]);
      const float least = ends.low.data<float>()[which], largest = ends.high.data<float>()[which];
      double best = std::numeric_limits<double>::infinity();
      for (int64_t k = 0; k < kNumMultipliers; ++k)
        best = std::min(best, error_of(own, least * multiplier(k), largest * multiplier(k)));
      const float found_low = low.data<float>()[which], found_high = high.data<float>()[which];
      EXPECT_LE(error_of(own, found_low, found_high), best * (1 + 1e-5)) << which;
      EXPECT_NEAR(found_low * largest, found_high * least, 1e-6 * std::fabs(found_low * largest)) << which;
      narrower += found_high < largest ? 1 : 0;
    }
    EXPECT_GT(narrower, 0);
  }
}

TEST(RangeSearch, HistogramsOfValuesBeginAtTheLowerEnd) {
  const Tensor values = lopsided({2, 512});
  const Bounds ends = bounds_of(values, {2, 1});
  for (int64_t row = 0; row < 2; ++row) {
    const Histogram histogram = histogram_of(values, ends, row);
    const float low = ends.low.data<float>()[row], high = ends.high.data<float>()[row];
    EXPECT_EQ(histogram.edge(0), low);
    EXPECT_EQ(histogram.edge(kHistogramBins), high);
    std::vector<int64_t> expected(static_cast<size_t>(kHistogramBins));
    for (int64_t i = 0; i < 512; ++i) {
      const double place = (values.data<float>()[row * 512 + i] - low) / (high - low) * 2048;
      ++expected[static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(place), 2047))];
    }
    int64_t apart = 0;  // where a quotient of float32 falls into the next bin
    for (size_t i = 0; i < expected.size(); ++i) apart += std::abs(expected[i] - histogram.counts()[i]);
    EXPECT_LE(apart, 4);
  }
}

// Half of what a percentile leaves out lies beyond each end, to within a bin, and 0 is never cut off.
TEST(RangeSearch, PercentilesCutBothEnds) {
  const Tensor values = lopsided({1, 4096});
  const Bounds all = bounds_of(values, {1, 1});
  const Histogram histogram = histogram_of(values, all, 0);
  const auto x = values.values<float>();
  const float bin = histogram.width() / kHistogramBins;
  for (const double percentile : {100., 99.9, 98., 90.}) {
    SCOPED_TRACE(percentile);
    const Ends ends = percentile_ends(histogram, percentile);
    const double most = 4096 * (100 - percentile) / 200;
    EXPECT_LE(std::ranges::count_if(x, [&](float v) { return v < ends.low - bin * 1e-3f; }), most);
    EXPECT_LE(std::ranges::count_if(x, [&](float v) { return v > ends.high + bin * 1e-3f; }), most);
    if (ends.low < 0) {
      EXPECT_GT(std::ranges::count_if(x, [&](float v) { return v < ends.low + bin * 1.001f; }), most);
    }
    EXPECT_GT(std::ranges::count_if(x, [&](float v) { return v > ends.high - bin * 1.001f; }), most);
  }
  const Ends exact = percentile_ends(histogram, 100);
  EXPECT_EQ(exact.low, *all.low.data<float>());
  EXPECT_EQ(exact.high, *all.high.data<float>());
  EXPECT_GT(percentile_ends(histogram, 98).low, exact.low);
  Histogram positive(Ends{0, 3});
  positive.count(std::vector<float>{2, 2, 2.5f, 3});
  EXPECT_EQ(percentile_ends(positive, 90).low, 0);
  EXPECT_EQ(percentile_ends(Histogram(Ends{0, 0}), 90).high, 0);
}

TEST(RangeSearch, EndsOfAHistogramHaveTheLeastError) {
  const Tensor values = lopsided({1, 4096});
  const Bounds all = bounds_of(values, {1, 1});
  const float low = *all.low.data<float>(), high = *all.high.data<float>();
  const Ends found = least_error_ends(histogram_of(values, all, 0), kInt4);
  EXPECT_NEAR(found.low * high, found.high * low, 1e-6 * std::fabs(found.low * high));
  const auto x = values.values<float>();
  const double error = error_of(x, found.low, found.high);
  EXPECT_LT(error, 0.8 * error_of(x, low, high));
  double best = std::numeric_limits<double>::infinity();
  for (int k = 128; k < 2048; ++k) {
    const double part = (k + 0.5) / 2048;
    best = std::min(best, error_of(x, part * low, part * high));
  }
  EXPECT_LE(error, best * 1.02);  // a histogram has the centers of its bins for the values
}

}  // namespace
}  // namespace temper::quant
