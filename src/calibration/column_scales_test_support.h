#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "calibration/awq.h"
#include "quant/number_format.h"
#include "tests/support/decoded.h"
#include "tests/support/packed_rows.h"

// Factors of columns by plain loops, for tests.
namespace temper::calibration::column_scales_test {

inline std::vector<float> all_floats(const Tensor& values) {
  const Tensor here = values.to(DType::kF32).contiguous();
  return {here.values<float>().begin(), here.values<float>().end()};
}

inline std::vector<float> column_maxima(const Tensor& values) {
  std::vector<float> largest(static_cast<size_t>(values.dim(-1)));
  for (int64_t i = 0; i < values.numel(); ++i) {
    float& own = largest[static_cast<size_t>(i % values.dim(-1))];
    own = std::max(own, std::fabs(values.data<float>()[i]));
  }
  return largest;
}

inline std::vector<float> column_means(const Tensor& values) {
  std::vector<double> sums(static_cast<size_t>(values.dim(-1)));
  for (int64_t i = 0; i < values.numel(); ++i)
    sums[static_cast<size_t>(i % values.dim(-1))] += std::fabs(values.data<float>()[i]);
  std::vector<float> means;
  for (const double sum : sums) means.push_back(static_cast<float>(sum / static_cast<double>(values.dim(0))));
  return means;
}

inline Tensor block_shares(const Tensor& values, int64_t block) {
  const Tensor shares = values.clone();
  for (int64_t first = 0; first < values.numel(); first += block) {
    float largest = 0;
    for (int64_t i = first; i < first + block; ++i)
      largest = std::max(largest, std::fabs(values.data<float>()[i]));
    for (int64_t i = first; i < first + block; ++i) shares.data<float>()[i] /= largest;
  }
  return shares;
}

inline Tensor scaled_by(const Tensor& values, std::span<const float> factors) {
  const Tensor product = values.clone();
  for (int64_t i = 0; i < product.numel(); ++i)
    product.data<float>()[i] *= factors[static_cast<size_t>(i) % factors.size()];
  return product;
}

// What a format makes of a weight [rows, columns] whose columns are divided by these scales before, by loops.
inline Tensor rounded_by_loops(const quant::Format& format, const Tensor& weight,
                               const std::vector<float>& scales, const Shape& groups) {
  std::vector<float> inverse;
  for (const float scale : scales) inverse.push_back(1 / scale);
  const Tensor scaled = scaled_by(weight, inverse);
  const quant::Encoded encoded = quant::encode("w", format, scaled, quant::amax_of(scaled, groups));
  return scaled_by(quant::decode(format, encoded, DType::kF32), scales);
}

// Σ ((W' - W) x)² in double precision.
inline double output_error(const Tensor& x, const Tensor& weight, const Tensor& other) {
  double error = 0;
  for (int64_t t = 0; t < x.dim(0); ++t)
    for (int64_t r = 0; r < weight.dim(0); ++r) {
      double y = 0;
      for (int64_t c = 0; c < weight.dim(1); ++c)
        y += (static_cast<double>(other.data<float>()[r * weight.dim(1) + c]) -
              static_cast<double>(weight.data<float>()[r * weight.dim(1) + c])) *
             static_cast<double>(x.data<float>()[t * x.dim(1) + c]);
      error += y * y;
    }
  return error;
}

inline void expect_all_near(const std::vector<float>& found, const std::vector<float>& wanted,
                            double relative) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], relative * wanted[i]) << i;
}

inline Tensor as_tensor(const std::vector<float>& values, int64_t columns) {
  return Tensor::from<float>(values, {std::ssize(values) / columns, columns});
}

// pre_quant_scale of AWQ for inputs x [tokens, columns] of a weight [rows, columns] in blocks of 16.
inline std::vector<float> awq_scales(const Tensor& x, const Tensor& weight, int64_t k) {
  std::vector<float> scales;
  for (const float factor :
       awq_factors(column_means(x), column_means(block_shares(weight, 16)), awq_alpha(k)))
    scales.push_back(1 / factor);
  return scales;
}

// `scales` are those of `alpha`, and no other alpha has a smaller error of outputs.
inline void expect_least_error(const quantizers::Quantizer& quantizer, const Tensor& x, const Tensor& weight,
                               const std::vector<float>& scales, float alpha) {
  Shape groups = quantizer.planned.amax;
  if (groups.ndim() == 3) groups = {groups[1], groups[2]};
  double least = 0, own = 0;
  for (int64_t k = 0; k < kNumAlphas; ++k) {
    const std::vector<float> candidate = awq_scales(x, weight, k);
    const double error =
        output_error(x, weight, rounded_by_loops(quantizer.planned.format, weight, candidate, groups));
    if (k == 0 || error < least) least = error;
    if (awq_alpha(k) != alpha) continue;
    own = error;
    expect_all_near(scales, candidate, 1e-6);
  }
  EXPECT_GT(own, 0);
  EXPECT_LE(own, least * (1 + 1e-5)) << quantizer.planned.name;
}

const std::vector<data::PackedRow> kScaledRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};
const quantizers::QuantizerKind kInt4{"int4", quantizers::Sharing::kBlock, 16}, kNvfp4{"nvfp4"};

inline quantizers::QuantizeOptions smooth_options() {
  return {"",
          {{"layers.*", quantizers::QuantizerKind{"int8", quantizers::Sharing::kRow},
            quantizers::QuantizerKind{"int8"}}},
          true,
          quantizers::CalibrationMethod::kSmoothQuant};
}
inline quantizers::QuantizeOptions awq_options(const quantizers::QuantizerKind& weights,
                                               const quantizers::QuantizerKind& inputs = {}) {
  return {"", {{"layers.*", weights, inputs}}, true, quantizers::CalibrationMethod::kAwqLite};
}

inline constexpr int64_t kGoldenRows = 24, kGoldenColumns = 64, kGoldenTokens = 40;  // of the goldens

// As tools/oracles/make_column_scale_cases.py makes them up.
inline Tensor golden_values(int64_t rows, uint32_t seed) {
  const Tensor values = Tensor::empty({rows, kGoldenColumns}, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < values.numel(); ++i) {
    int64_t total = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed * 7919u + k * 40503u;
      x = (x ^ x >> 15) * 2246822519u;
      total += static_cast<int64_t>(x >> 16) - 32768;
    }
    const int64_t factor = 1 + i % kGoldenColumns * (seed + 3) % 8;
    values.data<float>()[i] = static_cast<float>(static_cast<double>(total * factor) * 0x1p-19);
  }
  return values;
}

inline std::vector<float> golden_of(const Json& bits) {
  std::vector<float> values;
  for (const Json& value : bits.as_array())
    values.push_back(std::bit_cast<float>(static_cast<int32_t>(value.as_int())));
  return values;
}
inline Json scale_goldens() {
  return Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/column_scales.json");
}

}  // namespace temper::calibration::column_scales_test
