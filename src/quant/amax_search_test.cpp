// Calibrations compared with those of nvidia-modelopt (tools/oracles/make_calibration_cases.py).
#include "quant/amax_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/json/json.h"
#include "quant/number_format.h"

namespace temper::quant {
namespace {

// As the script makes them up.
Tensor made_up(int64_t rows, int64_t columns, int64_t seed) {
  const Tensor values = Tensor::empty({rows, columns}, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < values.numel(); ++i) {
    int64_t total = 0;
    for (int64_t k = 0; k < 4; ++k) {
      auto x = static_cast<uint32_t>(i * 2654435761 + seed * 7919 + k * 40503);
      x = (x ^ x >> 15) * 2246822519u;
      total += static_cast<int64_t>(x >> 16) - 32768;
    }
    values.data<float>()[i] = static_cast<float>(total * (i % 97 == 0 ? 4 : 1)) * 0x1p-18f;
  }
  return values;
}

Tensor weights() { return made_up(6, 256, 1); }
Tensor inputs() { return made_up(64, 250, 2); }

Histogram histogram_of_all(const Tensor& values) { return histogram_of(values, amax_of(values, {1, 1}), 0); }

Shape amax_shape(const std::string& format) {
  if (format == "int8") return {6, 1};
  return format == "int4" ? Shape{6, 8} : Shape{1, 1};
}

std::vector<float> found(const Json& golden) {
  const std::string& calibration = golden.at("calibration").as_string();
  const bool of_weights = golden.at("of").as_string() == "weights";
  const Json* const named = golden.find("format");
  const std::string format = named == nullptr ? "" : named->as_string();
  if (!of_weights) {
    const Histogram histogram = histogram_of_all(inputs());
    if (calibration == "percentile") return {percentile_amax(histogram, golden.at("percentile").as_double())};
    if (calibration == "entropy") return {least_divergence_amax(histogram, 8)};
    return {least_error_amax(histogram, format_named(format))};
  }
  const Tensor values = weights();
  const Tensor amax = amax_of(values, calibration == "percentile" ? Shape{6, 1} : amax_shape(format));
  std::vector<float> result;
  if (calibration == "percentile") {
    for (int64_t i = 0; i < amax.numel(); ++i)
      result.push_back(percentile_amax(histogram_of(values, amax, i), golden.at("percentile").as_double()));
    return result;
  }
  const Tensor best = least_error_amax(amax, squared_errors(format_named(format), values, amax));
  return {best.values<float>().begin(), best.values<float>().end()};
}

TEST(AmaxSearch, FindsWhatModeloptFinds) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/calibrations.json");
  int64_t numbers = 0;
  for (const Json& golden : cases.as_array()) {
    SCOPED_TRACE(golden.dump());
    const std::vector<float> own = found(golden);
    const auto& expected = golden.at("amax").as_array();
    ASSERT_EQ(own.size(), expected.size());
    for (size_t i = 0; i < own.size(); ++i) {
      // Edges and products of float32, which the other program may round once more.
      EXPECT_LE(std::abs(std::bit_cast<int32_t>(own[i]) - expected[i].as_int()), 1) << i;
      ++numbers;
    }
  }
  EXPECT_EQ(numbers, 6 + 1 + 48 + 1 + 5 * 7 + 3 + 1);
}

// Rows that several ranks hold: their sums and counts are those of all.
TEST(AmaxSearch, PartsOfAMatrixAddUp) {
  const Tensor all = weights(), amax = amax_of(all, {1, 1});
  const Format& fp8 = format_named("fp8");
  const std::vector<double> whole = squared_errors(fp8, all, amax),
                            first = squared_errors(fp8, all.narrow(0, 0, 2), amax),
                            rest = squared_errors(fp8, all.narrow(0, 2, 4), amax);
  for (size_t k = 0; k < whole.size(); ++k) EXPECT_NEAR(first[k] + rest[k], whole[k], 1e-12 * whole[k]);
  Histogram counts = histogram_of(all.narrow(0, 0, 2), amax, 0);
  counts.count(all.narrow(0, 2, 4).contiguous().values<float>());
  const Histogram expected = histogram_of_all(all);
  EXPECT_TRUE(std::equal(counts.counts().begin(), counts.counts().end(), expected.counts().begin()));
}

// The sums of many rows are formed some at a time, each row's where it belongs.
TEST(AmaxSearch, EveryRowOfManyIsSearched) {
  const int64_t rows = 2500;
  const Tensor all = made_up(rows, 16, 3);
  const Format& fp8 = format_named("fp8");
  const Tensor of_rows = amax_of(all, {rows, 1}), of_all = amax_of(all, {1, 1});
  const std::vector<double> by_row = squared_errors(fp8, all, of_rows),
                            whole = squared_errors(fp8, all, of_all);
  std::vector<double> sums(whole.size());
  for (int64_t row = 0; row < rows; ++row) {
    const Tensor one = all.narrow(0, row, 1).contiguous();
    const std::vector<double> own = squared_errors(fp8, one, of_rows.narrow(0, row, 1)),
                              part = squared_errors(fp8, one, of_all);
    const auto found = by_row.begin() + row * kNumMultipliers;
    ASSERT_TRUE(std::equal(own.begin(), own.end(), found)) << row;
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += part[k];
  }
  for (size_t k = 0; k < sums.size(); ++k) EXPECT_NEAR(whole[k], sums[k], 1e-12 * sums[k]);
}

// Of stacked experts each has its own values; blocks and tiles are cut from rows.
TEST(AmaxSearch, HistogramsAreOfTheElementsThatShareAnAmax) {
  const Tensor values = weights().reshape({3, 2, 256});
  for (const Shape& shape : {Shape{3, 1, 1}, Shape{1, 2, 1}, Shape{3, 2, 4}, Shape{1, 1, 2}}) {
    const Tensor amax = amax_of(values, shape);
    const Groups groups = groups_of("amax", values.shape(), shape);
    for (int64_t which = 0; which < amax.numel(); ++which) {
      const Histogram histogram = histogram_of(values, amax, which);
      std::vector<int64_t> expected(static_cast<size_t>(kHistogramBins));
      for (int64_t i = 0; i < values.numel(); ++i) {
        if (groups.first(i / 256) + i % 256 / groups.width() != which) continue;
        const double place = std::fabs(values.data<float>()[i]) / static_cast<double>(histogram.largest());
        ++expected[static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(place * 2048), 2047))];
      }
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), histogram.counts().begin()))
          << to_string(shape) << " " << which;
    }
  }
}

TEST(AmaxSearch, NoAmaxOfAPercentileIsZero) {
  const std::vector<float> values{0, 0, 0, 0, 0, 0, 0, 0, 0, 3};
  Histogram histogram(3);
  histogram.count(values);
  EXPECT_EQ(percentile_amax(histogram, 50), histogram.edge(1));
  EXPECT_EQ(histogram.edge(kHistogramBins), 3);
}

}  // namespace
}  // namespace temper::quant
