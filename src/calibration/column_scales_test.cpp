// Factors of columns: those of SmoothQuant and AWQ.
#include "calibration/column_scales.h"

#include <map>
#include <set>

#include "calibration/column_scales_test_support.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::calibration {
namespace {

using quantizers::CalibrationMethod;
using quantizers::QuantizeOptions;
using quantizers::Quantizer;
using quantizers::QuantizerKind;
using quantizers::Sharing;
using namespace column_scales_test;

// Powers in float32 of another library are a unit of the last place away; that of one is exact.
TEST(ColumnScales, SmoothQuantIsThatOfModelopt) {
  const Tensor weight = golden_values(kGoldenRows, 1), x = golden_values(kGoldenTokens, 2);
  const Json file = scale_goldens();
  int cases = 0;
  for (const Json& c : file.as_array()) {
    if (c.at("calibration").as_string() != "smoothquant") continue;
    const double alpha = c.at("alpha").as_double();
    const std::vector<float> scales = smoothquant_scales(column_maxima(x), column_maxima(weight), alpha),
                             golden = golden_of(c.at("pre_quant_scale"));
    if (alpha == 1) {
      EXPECT_EQ(scales, golden);
    }
    expect_all_near(scales, golden, 3e-7);
    std::vector<float> inverse;
    for (const float scale : scales) inverse.push_back(1 / scale);
    expect_all_near(all_floats(quant::amax_of(scaled_by(weight, inverse), {kGoldenRows, 1})),
                    golden_of(c.at("weight_amax")), 5e-7);
    expect_all_near(all_floats(quant::amax_of(scaled_by(x, scales), {1, 1})), golden_of(c.at("input_amax")),
                    5e-7);
    ++cases;
  }
  EXPECT_EQ(cases, 3);
}

// Columns that no input reached keep their numbers.
TEST(ColumnScales, SmoothQuantAtItsEdges) {
  const std::vector<float> inputs{0, 0x1p-31f, 1e-6f, 2, 1e6f}, weights{1, 1, 1, 4, 0};
  EXPECT_EQ(smoothquant_scales(inputs, weights, 1), (std::vector<float>{1, 1, 1e4f, 0.5f, 1e-4f}));
  EXPECT_EQ(smoothquant_scales(inputs, weights, 0), (std::vector<float>{1, 1, 1, 4, 1e-4f}));
}

TEST(ColumnScales, AwqLiteIsThatOfModelopt) {
  const Tensor weight = golden_values(kGoldenRows, 1), x = golden_values(kGoldenTokens, 2);
  const std::vector<float> of_inputs = column_means(x), of_weights = column_means(block_shares(weight, 16));
  const quant::Format& int4 = quant::format_named("int4");
  const Json file = scale_goldens();
  for (const Json& c : file.as_array()) {
    if (c.at("calibration").as_string() != "awq_lite") continue;
    const auto& losses = c.at("losses").as_array();
    ASSERT_EQ(std::ssize(losses), kNumAlphas);
    int64_t best = 0;
    for (int64_t k = 0; k < kNumAlphas; ++k) {
      std::vector<float> scales;
      for (const float factor : awq_factors(of_inputs, of_weights, awq_alpha(k)))
        scales.push_back(1 / factor);
      const double loss =
          output_error(x, weight,
                       rounded_by_loops(int4, weight, scales, {kGoldenRows, kGoldenColumns / 16})) /
          (kGoldenTokens * kGoldenRows);
      const double golden = losses[static_cast<size_t>(k)].as_double();
      EXPECT_NEAR(loss, golden, 1e-3 * golden) << k;
      if (golden < losses[static_cast<size_t>(best)].as_double()) best = k;
    }
    EXPECT_EQ(awq_alpha(best), static_cast<float>(c.at("alpha").as_double()));
    std::vector<float> scales;
    for (const float factor : awq_factors(of_inputs, of_weights, awq_alpha(best)))
      scales.push_back(1 / factor);
    expect_all_near(scales, golden_of(c.at("pre_quant_scale")), 1e-6);
  }
}

// There, too, the search looks at the first rounding alone, and the second amax is the largest of the first.
TEST(ColumnScales, AwqLiteOfWeightsThatAreRoundedTwiceIsThatOfModelopt) {
  const Tensor x = golden_values(kGoldenTokens, 2);
  const Json file = scale_goldens();
  const Json *once = nullptr, *twice = nullptr;
  for (const Json& c : file.as_array()) {
    if (c.at("calibration").as_string() == "awq_lite") once = &c;
    if (c.at("calibration").as_string() == "awq_lite of weights that are rounded twice") twice = &c;
  }
  ASSERT_TRUE(once != nullptr && twice != nullptr);
  for (const char* same : {"alpha", "pre_quant_scale", "weight_amax"})
    EXPECT_EQ(twice->at(same), once->at(same)) << same;
  const std::vector<float> scales = golden_of(twice->at("pre_quant_scale")),
                           amax = golden_of(twice->at("weight_amax"));
  EXPECT_EQ(golden_of(twice->at("second_amax")), std::vector<float>{*std::ranges::max_element(amax)});
  EXPECT_EQ(golden_of(twice->at("input_amax")), all_floats(quant::amax_of(scaled_by(x, scales), {1, 1})));
}

// All that passes each module, by the module's name.
std::map<std::string, std::vector<float>> inputs_by_module(models::Model& model) {
  std::map<std::string, std::vector<float>> all;
  pass_unrounded(model.decoder, kScaledRows, 0, collectives::alone(),
                 [&](Quantizer& each, const Tensor& x, int64_t) {
                   const Tensor here = x.to(DType::kF32).contiguous();
                   auto& own = all[each.planned.module()];
                   own.insert(own.end(), here.values<float>().begin(), here.values<float>().end());
                 });
  return all;
}
TEST(ColumnScales, SmoothQuantOfAModel) {
  for (const double alpha : {1.0, 0.5}) {
    const auto model = tiny_model({.quantize = smooth_options()});
    CalibrationOptions options{.method = CalibrationMethod::kSmoothQuant};
    options.alpha = alpha;
    const Calibration found = calibrate(model->decoder, kScaledRows, options);
    EXPECT_EQ(found.tokens, 45);
    const auto inputs = inputs_by_module(*model);
    EXPECT_EQ(inputs.size(), 8u);
    for (const auto& [module, values] : inputs) {
      const Quantizer& weight = *model->decoder.quantizers().find(module + ".weight_quantizer");
      const Tensor w = model->decoder.parameters().value(weight.planned.weight),
                   x = as_tensor(values, w.dim(1));
      const std::vector<float> scales = all_floats(weight.columns.whole);
      EXPECT_EQ(scales, smoothquant_scales(column_maxima(x), column_maxima(w), alpha)) << module;
      const Quantizer& input = *model->decoder.quantizers().find(module + ".input_quantizer");
      EXPECT_EQ(all_floats(input.amax), all_floats(quant::amax_of(scaled_by(x, scales), {1, 1}))) << module;
      EXPECT_EQ(all_floats(weight.amax),
                all_floats(quant::amax_of(scaled_by(w, all_floats(weight.columns.inverse)), {w.dim(0), 1})))
          << module;
    }
  }
}

// The search finds what loops in double precision find.
TEST(ColumnScales, AwqTakesTheAlphaWithTheLeastErrorOfOutputs) {
  for (const auto& [weights, inputs_kind] : {std::pair{kInt4, QuantizerKind{}}, {kNvfp4, kNvfp4}}) {
    SCOPED_TRACE(weights.format);
    const auto model = tiny_model({.quantize = awq_options(weights, inputs_kind)});
    const Calibration found = calibrate(model->decoder, kScaledRows, {.method = CalibrationMethod::kAwqLite});
    const auto inputs = inputs_by_module(*model);
    ASSERT_EQ(found.alphas.size(), inputs.size());
    std::set<float> alphas;
    for (const ChosenAlpha& chosen : found.alphas) {
      const Quantizer& weight = *model->decoder.quantizers().find(chosen.module + ".weight_quantizer");
      const Tensor w = model->decoder.parameters().value(weight.planned.weight);
      expect_least_error(weight, as_tensor(inputs.at(chosen.module), w.dim(1)), w,
                         all_floats(weight.columns.whole), chosen.alpha);
      alphas.insert(chosen.alpha);
    }
    EXPECT_GT(alphas.size(), 1u);
  }
}

// A module's outputs are closer to those of the weights that were not rounded than by the largest magnitudes.
TEST(ColumnScales, AwqErrsLessThanTheLargestMagnitudes) {
  const auto model = tiny_model({.quantize = awq_options(kInt4)});
  calibrate(model->decoder, kScaledRows, {.method = CalibrationMethod::kAwqLite});
  for (const auto& [module, values] : inputs_by_module(*model)) {
    const Quantizer& weight = *model->decoder.quantizers().find(module + ".weight_quantizer");
    const Tensor w = model->decoder.parameters().value(weight.planned.weight),
                 x = as_tensor(values, w.dim(1));
    const std::vector<float> ones(static_cast<size_t>(w.dim(1)), 1.f);
    const quant::Format& format = weight.planned.format;
    EXPECT_LE(output_error(
                  x, w, rounded_by_loops(format, w, all_floats(weight.columns.whole), weight.planned.amax)),
              output_error(x, w, rounded_by_loops(format, w, ones, weight.planned.amax)))
        << module;
  }
}

TEST(ColumnScales, NeedRowsAndFiniteValues) {
  const auto model = tiny_model({.quantize = awq_options(kInt4)});
  EXPECT_TRUE(needs_rows(model->decoder.quantizers()));
  const CalibrationOptions options{.method = CalibrationMethod::kAwqLite};
  EXPECT_EQ(error_of([&] { calibrate(model->decoder, {}, options); }),
            "[quantize] the input of layers.0.attention.qkv saw no values while it was calibrated; give it "
            "more rows");
  const Tensor norm = model->decoder.parameters().value("layers.0.input_norm.weight");
  norm.data<float>()[3] = NAN;
  EXPECT_EQ(error_of([&] { calibrate(model->decoder, kScaledRows, options); }),
            "[quantize] the input of layers.0.attention.qkv has values that are not finite");
  EXPECT_EQ(
      error_of([&] {
        tiny_model(
            {.quantize = {"", {{"layers.*", QuantizerKind{"fp8"}, {}}}, true, CalibrationMethod::kAwqLite}});
      }),
      "[quantize.calibration] awq_lite is for weights in blocks, and there are none: write calibration: max, "
      "or "
      "another preset");
  EXPECT_EQ(error_of([&] {
              tiny_model({.quantize = {"",
                                       {{"layers.*", QuantizerKind{"int8", Sharing::kRow}, {}}},
                                       true,
                                       CalibrationMethod::kSmoothQuant}});
            }),
            "[quantize.calibration] smoothquant is for weights and inputs in int8, with inputs calibrated, "
            "and there "
            "are none: write calibration: max, or another preset");
}

}  // namespace
}  // namespace temper::calibration
