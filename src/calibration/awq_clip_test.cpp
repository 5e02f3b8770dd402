#include "calibration/awq_clip.h"

#include <map>
#include <tuple>

#include "calibration/calibration_passes.h"
#include "calibration/column_scales_test_support.h"
#include "tests/support/decoded.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::calibration {
namespace {

using quantizers::CalibrationMethod;
using quantizers::Quantizer;
using quantizers::QuantizerKind;
using namespace column_scales_test;

// By loops: of each amax of a weight [rows, columns] with factors, the ratio with which its block changes
// outputs least.
std::vector<float> clipped_by_loops(const quant::Format& format, const Tensor& x, const Tensor& weight,
                                    const std::vector<float>& scales, int64_t block) {
  std::vector<float> inverse;
  for (const float scale : scales) inverse.push_back(1 / scale);
  const int64_t rows = weight.dim(0), columns = weight.dim(1), blocks = columns / block;
  const Tensor scaled = scaled_by(weight, inverse), amax = quant::amax_of(scaled, {rows, blocks});
  std::vector<double> least(static_cast<size_t>(rows * blocks), 1e300);
  std::vector<float> best(least.size());
  for (int64_t k = 0; k < kNumClips; ++k) {
    const Tensor smaller = amax.clone();
    for (float& value : smaller.values<float>()) value *= clip_ratio(k);
    const Tensor other =
        scaled_by(quant::decode(format, quant::encode("w", format, scaled, smaller), DType::kF32), scales);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t b = 0; b < blocks; ++b) {
        double error = 0;
        for (int64_t t = 0; t < x.dim(0); ++t) {
          double y = 0;
          for (int64_t c = b * block; c < (b + 1) * block; ++c)
            y += (static_cast<double>(other.data<float>()[r * columns + c]) -
                  static_cast<double>(weight.data<float>()[r * columns + c])) *
                 static_cast<double>(x.data<float>()[t * columns + c]);
          error += y * y;
        }
        const auto i = static_cast<size_t>(r * blocks + b);
        if (error >= least[i] * (1 - 1e-6)) continue;
        least[i] = error;
        best[i] = smaller.data<float>()[i];
      }
  }
  return best;
}

TEST(AwqClip, RatiosAreThoseOfModelopt) {
  EXPECT_EQ(clip_ratio(0), 0.5f);
  EXPECT_EQ(clip_ratio(7), 0.85f);
  EXPECT_EQ(clip_ratio(kNumClips - 1), 1.f);
  const std::vector<float> change{1, -2}, gram{2, 0.5f, 0.5f, 4};
  EXPECT_EQ(quadratic(change, gram), 2 - 2 + 16);
}

// Of all tokens, which are fewer than nvidia-modelopt takes of a batch; it multiplies matrices in float32.
TEST(AwqClip, LoopsAreThoseOfModelopt) {
  const Tensor weight = golden_values(kGoldenRows, 1), x = golden_values(kGoldenTokens, 2);
  const std::vector<float> ones(kGoldenColumns, 1.f),
      found = clipped_by_loops(quant::format_named("int4"), x, weight, ones, 16);
  const std::vector<float> largest = all_floats(quant::amax_of(weight, {kGoldenRows, kGoldenColumns / 16}));
  const Json file = scale_goldens();
  int cases = 0, smaller = 0;
  for (const Json& c : file.as_array()) {
    if (c.at("calibration").as_string() != "awq_clip") continue;
    EXPECT_EQ(found, golden_of(c.at("weight_amax")));
    for (size_t i = 0; i < found.size(); ++i) smaller += found[i] < largest[i] ? 1 : 0;
    ++cases;
  }
  EXPECT_EQ(cases, 1);
  EXPECT_GT(smaller, 10);
}

// After factors of columns, each block of each row.
TEST(AwqClip, BlocksTakeTheAmaxWithTheLeastErrorOfTheirOutputs) {
  const auto model =
      tiny_model({.quantize = {"", {{"layers.*", kInt4, {}}}, true, CalibrationMethod::kAwqFull}});
  calibrate(model->decoder, kScaledRows, {.method = CalibrationMethod::kAwqFull});
  std::map<std::string, std::vector<float>> inputs;
  pass_unrounded(model->decoder, kScaledRows, 0, collectives::alone(),
                 [&](Quantizer& each, const Tensor& x, int64_t) {
                   const std::vector<float> here = all_floats(x);
                   auto& own = inputs[each.planned.module()];
                   own.insert(own.end(), here.begin(), here.end());
                 });
  int64_t smaller = 0, apart = 0, all = 0;
  for (const Quantizer& each : model->decoder.quantizers().all()) {
    const Tensor w = model->decoder.parameters().value(each.planned.weight);
    const std::vector<float> scales = all_floats(each.columns.whole),
                             wanted = clipped_by_loops(each.planned.format,
                                                       as_tensor(inputs.at(each.planned.module()), w.dim(1)),
                                                       w, scales, 16),
                             found = all_floats(each.amax),
                             largest = all_floats(quant::amax_of(
                                 scaled_by(w, all_floats(each.columns.inverse)), each.planned.amax));
    for (size_t i = 0; i < found.size(); ++i) {
      apart += found[i] == wanted[i] ? 0 : 1;
      smaller += found[i] < largest[i] ? 1 : 0;
      ++all;
    }
  }
  EXPECT_LE(apart, all / 200);  // of errors that are nearly equal
  EXPECT_GT(smaller, all / 10);
}

TEST(AwqClip, Nvfp4TakesTheScaleOfTheWholeByOutputs) {
  const auto model =
      tiny_model({.quantize = {"", {{"layers.*", kNvfp4, kNvfp4}}, true, CalibrationMethod::kAwqClip}});
  calibrate(model->decoder, kScaledRows, {.method = CalibrationMethod::kAwqClip});
  std::map<std::string, std::vector<float>> inputs;
  pass_unrounded(model->decoder, kScaledRows, 0, collectives::alone(),
                 [&](Quantizer& each, const Tensor& x, int64_t) {
                   const std::vector<float> here = all_floats(x);
                   auto& own = inputs[each.planned.module()];
                   own.insert(own.end(), here.begin(), here.end());
                 });
  int others = 0;
  for (const Quantizer& each : model->decoder.quantizers().all()) {
    if (each.planned.of_input) continue;
    const Tensor w = model->decoder.parameters().value(each.planned.weight),
                 x = as_tensor(inputs.at(each.planned.module()), w.dim(1)), amax = quant::amax_of(w, {1, 1});
    double least = 0, own = 0;
    for (int64_t k = 0; k < kNumClips; ++k) {
      const Tensor smaller = amax.clone();
      *smaller.data<float>() *= clip_ratio(k);
      const quant::Format& format = each.planned.format;
      const double error =
          output_error(x, w, quant::decode(format, quant::encode("w", format, w, smaller), DType::kF32));
      if (k == 0 || error < least) least = error;
      if (*smaller.data<float>() == *each.amax.data<float>()) own = error;
    }
    EXPECT_GT(own, 0) << each.planned.name;
    EXPECT_LE(own, least * (1 + 1e-5)) << each.planned.name;
    others += *each.amax.data<float>() == *amax.data<float>() ? 0 : 1;
  }
  EXPECT_GT(others, 0);
}

// No output says what a smaller amax would lose: it stays the largest magnitude of the expert's weights.
TEST(AwqClip, ExpertsWithoutTokensKeepTheirAmax) {
  for (const auto& [weights, inputs, method] :
       {std::tuple{kInt4, QuantizerKind{}, CalibrationMethod::kAwqFull},
        {kNvfp4, kNvfp4, CalibrationMethod::kAwqClip}}) {
    SCOPED_TRACE(weights.format);
    const auto model = tiny_model(
        {.type = "qwen3_moe", .quantize = {"", {{"layers.*.mlp.experts.*", weights, inputs}}, true, method}});
    // Equal logits: all tokens take the first two experts.
    for (const char* gate : {"layers.0.mlp.gate.weight", "layers.1.mlp.gate.weight"})
      model->decoder.parameters().at(gate).value.fill_zero();
    calibrate(model->decoder, kScaledRows, {.method = method});
    int64_t smaller = 0;
    for (const Quantizer& each : model->decoder.quantizers().all()) {
      if (each.planned.of_input) continue;
      const int64_t rows = each.planned.values[1];
      const Tensor all = model->decoder.parameters().value(each.planned.weight);
      for (int64_t e = 0; e < each.planned.experts; ++e) {
        const Tensor own = each.amax.narrow(0, e, 1);
        const std::vector<float> found = all_floats(own),
                                 largest = all_floats(quant::amax_of(
                                     all.narrow(0, e * rows, rows).contiguous(), {own.dim(1), own.dim(2)}));
        if (e >= 2) {
          EXPECT_EQ(found, largest) << each.planned.name << " " << e;
        } else {
          smaller += found == largest ? 0 : 1;
        }
      }
    }
    EXPECT_GT(smaller, 2);
  }
}

TEST(AwqClip, NeedsToSeeInputs) {
  EXPECT_EQ(error_of([&] {
              tiny_model({.quantize = {"", {{"layers.*", kInt4, {}}}, true, CalibrationMethod::kAwqClip}});
            }),
            "[quantize.calibration] awq_clip needs calibrated inputs for weights in blocks, and "
            "layers.0.attention.qkv has none: write awq_full");
}

}  // namespace
}  // namespace temper::calibration
