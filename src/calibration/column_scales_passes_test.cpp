// What passes compute with factors of columns, and their gradients.
#include <map>

#include "base/json/json.h"
#include "calibration/column_scales.h"
#include "calibration/column_scales_test_support.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::calibration {
namespace {

using quantizers::CalibrationMethod;
using quantizers::QuantizeOptions;
using quantizers::Quantizer;
using quantizers::QuantizerKind;
using quantizers::Sharing;
using namespace column_scales_test;
using op_testing::Doubles;
using op_testing::values_of;

struct ScaledRun {
  explicit ScaledRun(const TinyModel& tiny, const training::TrainerOptions& options = {})
      : model(tiny_model(tiny)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, options) {}
  void calibrate(CalibrationMethod method) {
    calibration::calibrate(model->decoder, kScaledRows, {.method = method});
  }
  std::vector<Doubles> gradients() {
    std::vector<Doubles> all;
    auto& parameters = model->decoder.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) all.push_back(values_of(parameters[i].grad->grad()));
    return all;
  }
  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  training::Trainer trainer;
};

// Weights alone: a model of decoded codes times scales times factors, in float32, rounded once, gives the
// same losses and gradients, bit by bit.
TEST(ColumnScales, PassesComputeWithTheWeightsThatAreExported) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const char* provider : {"eager", ""})
      for (const QuantizerKind& kind : {kInt4, kNvfp4}) {
        SCOPED_TRACE(fmt::format("{} {} {}", to_string(dtype), provider, kind.format));
        TinyModel tiny{.dtype = dtype, .ops = {.fallback = provider}};
        ScaledRun plain(tiny);
        tiny.quantize = awq_options(kind);
        ScaledRun quantized(tiny);
        quantized.calibrate(CalibrationMethod::kAwqLite);
        for (const Quantizer& each : quantized.model->decoder.quantizers().all()) {
          const Tensor value = plain.model->decoder.parameters().at(each.planned.weight).value;
          value.copy_from(rounded_by_loops(each.planned.format, value.to(DType::kF32).clone(),
                                           all_floats(each.columns.whole), each.planned.amax)
                              .to(dtype));
        }
        EXPECT_EQ(quantized.trainer.evaluate(kScaledRows).loss, plain.trainer.evaluate(kScaledRows).loss);
        EXPECT_EQ(quantized.trainer.step(kScaledRows, 0).loss, plain.trainer.step(kScaledRows, 0).loss);
        EXPECT_EQ(quantized.gradients(), plain.gradients());
      }
}

// Eight bits change little: factors and their reciprocals cancel out in losses, and in gradients where
// weights do not take over too much.
TEST(ColumnScales, FactorsThemselvesChangeLittle) {
  TinyModel tiny;
  ScaledRun plain(tiny);
  const double loss = plain.trainer.step(kScaledRows, 0).loss;
  tiny.quantize = smooth_options();
  ScaledRun smoothed(tiny);
  CalibrationOptions options{.method = CalibrationMethod::kSmoothQuant};
  options.alpha = 0.3;
  calibrate(smoothed.model->decoder, kScaledRows, options);
  EXPECT_NEAR(smoothed.trainer.step(kScaledRows, 0).loss, loss, 1e-2 * loss);
  const auto expected = plain.gradients(), found = smoothed.gradients();
  double apart = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i)
    for (size_t j = 0; j < found[i].size(); ++j) {
      apart += std::pow(found[i][j] - expected[i][j], 2);
      size += std::pow(expected[i][j], 2);
    }
  EXPECT_LT(apart, 0.01 * size);
}

TEST(ColumnScales, RecomputingLayersChangesNothingAndRunsLearn) {
  for (const auto& [options, method] : {std::pair{smooth_options(), CalibrationMethod::kSmoothQuant},
                                        {awq_options(kInt4), CalibrationMethod::kAwqLite},
                                        {awq_options(kNvfp4, kNvfp4), CalibrationMethod::kAwqLite}}) {
    const TinyModel tiny{.quantize = options};
    ScaledRun whole(tiny);
    whole.calibrate(method);
    const double before = whole.trainer.step(kScaledRows, 0).loss;
    for (const auto checkpointing : {training::Checkpointing::kFull, training::Checkpointing::kSelective}) {
      ScaledRun other(tiny, {.checkpointing = checkpointing});
      other.calibrate(method);
      other.trainer.step(kScaledRows, 0);
      EXPECT_EQ(other.gradients(), whole.gradients());
    }
    double after = 0;
    for (int i = 0; i < 20; ++i) after = whole.trainer.step(kScaledRows, 1e-2).loss;
    EXPECT_LT(after, 0.7 * before);
  }
}

// Each expert has its own factors, from its tokens alone; one without any keeps its numbers, and is named.
TEST(ColumnScales, ExpertsHaveFactorsOfTheirOwn) {
  for (const auto& [options, method] :
       {std::pair{
            QuantizeOptions{"", {{"layers.*.mlp.experts.*", kInt4, {}}}, true, CalibrationMethod::kAwqLite},
            CalibrationMethod::kAwqLite},
        {QuantizeOptions{
             "",
             {{"layers.*.mlp.experts.*", QuantizerKind{"int8", Sharing::kRow}, QuantizerKind{"int8"}}},
             true,
             CalibrationMethod::kSmoothQuant},
         CalibrationMethod::kSmoothQuant}}) {
    const auto model = tiny_model({.type = "qwen3_moe", .quantize = options});
    // Few tokens, so that some experts get none.
    const std::vector<data::PackedRow> rows{test_row(1, {2})};
    const Calibration found = calibrate(model->decoder, rows, {.method = method});
    EXPECT_FALSE(found.idle_experts.empty());
    std::map<std::pair<std::string, int64_t>, std::vector<float>> inputs;
    pass_unrounded(model->decoder, rows, 0, collectives::alone(),
                   [&](Quantizer& each, const Tensor& x, int64_t place) {
                     auto& own = inputs[{each.planned.module(), place}];
                     const std::vector<float> here = all_floats(x);
                     own.insert(own.end(), here.begin(), here.end());
                   });
    int with_tokens = 0, without = 0;
    for (const Quantizer& weight : model->decoder.quantizers().all()) {
      if (!weight.columns.exist()) continue;
      const int64_t rows_each = weight.planned.values[1], columns = weight.planned.values[2];
      const Tensor all = model->decoder.parameters().value(weight.planned.weight);
      for (int64_t e = 0; e < weight.planned.experts; ++e) {
        const std::vector<float> scales = all_floats(weight.columns.whole.narrow(0, e, 1));
        const auto own = inputs.find({weight.planned.module(), e});
        if (own == inputs.end()) {
          EXPECT_EQ(scales, std::vector<float>(scales.size(), 1.f)) << weight.planned.name << " " << e;
          ++without;
          continue;
        }
        ++with_tokens;
        const Tensor w = all.narrow(0, e * rows_each, rows_each).clone(), x = as_tensor(own->second, columns);
        if (method == CalibrationMethod::kSmoothQuant) {
          EXPECT_EQ(scales, smoothquant_scales(column_maxima(x), column_maxima(w), 1));
          continue;
        }
        const auto chosen = std::ranges::find_if(found.alphas, [&](const ChosenAlpha& each) {
          return each.module == weight.planned.module() && each.expert == e;
        });
        ASSERT_NE(chosen, found.alphas.end());
        expect_least_error(weight, x, w, scales, chosen->alpha);
      }
    }
    EXPECT_GT(with_tokens, 4);
    EXPECT_GT(without, 0);
  }
}

// Experts that ranks may divide learn with their own factors.
TEST(ColumnScales, ExpertsLearnBetweenTheirFactors) {
  for (const auto& [weights, inputs, method] :
       {std::tuple{kInt4, QuantizerKind{}, CalibrationMethod::kAwqLite},
        {kNvfp4, kNvfp4, CalibrationMethod::kAwqLite},
        {QuantizerKind{"int8", Sharing::kRow}, QuantizerKind{"int8"}, CalibrationMethod::kSmoothQuant}}) {
    SCOPED_TRACE(weights.format);
    const TinyModel tiny{.type = "qwen3_moe",
                         .quantize = {"", {{"layers.*", weights, inputs}}, true, method}};
    auto run = tiny_model(tiny);
    optimizers::AdamW optimizer(run->decoder.parameters(), run->decoder.ops(), {});
    training::Trainer trainer(run->decoder, optimizer, {});
    calibrate(run->decoder, kScaledRows, {.method = method});
    const double before = trainer.step(kScaledRows, 1e-2).loss;
    double after = 0;
    for (int i = 0; i < 20; ++i) after = trainer.step(kScaledRows, 1e-2).loss;
    EXPECT_LT(after, 0.7 * before);
  }
}

}  // namespace
}  // namespace temper::calibration
