// Calibrations that search: what they find in a model is what quant/ finds in its weights and inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "calibration/calibration.h"
#include "calibration/calibration_passes.h"
#include "quant/amax_search.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "tests/support/quantized_run.h"
#include "tests/support/tiny_model.h"

namespace temper::calibration {
namespace {

using op_testing::Doubles;
using op_testing::values_of;
using quantizers::CalibrationMethod;
using quantizers::QuantizeOptions;
using quantizers::Quantizer;
using quantizers::QuantizerKind;
using quantizers::Sharing;

std::unique_ptr<models::Model> model_with(const QuantizerKind& weights, const QuantizerKind& inputs,
                                          CalibrationMethod method) {
  return tiny_model({.type = "qwen3_moe",
                     .quantize = {"",
                                  {{"layers.*.attention.*", weights, inputs},
                                   {"layers.*.mlp.experts.*", weights, QuantizerKind{}}},
                                  true,
                                  method}});
}

std::map<std::string, Doubles> amax_after(models::Model& model, const CalibrationOptions& options) {
  calibrate(model.decoder, kQuantizedRows, options);
  std::map<std::string, Doubles> amax;
  for (const Quantizer& each : model.decoder.quantizers().all())
    amax[each.planned.name] = values_of(each.amax);
  return amax;
}

// Of every weight the largest magnitudes and its values.
template <class F>
void for_each_weight(const models::Model& model, F&& f) {
  for (const Quantizer& each : model.decoder.quantizers().all()) {
    if (each.planned.of_input) continue;
    const Tensor values = model.decoder.parameters().value(each.planned.weight).reshape(each.planned.values);
    f(each, values, quant::amax_of(values, each.planned.amax));
  }
}

// All values that pass each input, seen by an observer of our own.
std::map<std::string, std::vector<float>> inputs_of(models::Model& model) {
  std::map<std::string, std::vector<float>> all;
  pass_unrounded(model.decoder, kQuantizedRows, 0, collectives::alone(),
                 [&](Quantizer& each, const Tensor& x, int64_t) {
                   if (!each.planned.of_input) return;
                   const Tensor here = x.contiguous();
                   all[each.planned.name].insert(all[each.planned.name].end(), here.values<float>().begin(),
                                                 here.values<float>().end());
                 });
  return all;
}

quant::Histogram histogram_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  quant::Histogram histogram(largest);
  histogram.count(values);
  return histogram;
}

TEST(AmaxSearches, MseIsOfEachWeightAndOfTheInputsHistogram) {
  for (const auto& [weights, inputs] :
       std::vector<std::pair<QuantizerKind, QuantizerKind>>{{{"fp8"}, {"fp8"}},
                                                            {{"int8", Sharing::kRow}, {"int8"}},
                                                            {{"int4", Sharing::kBlock, 16}, {"int8"}},
                                                            {{"nvfp4"}, {"nvfp4"}}}) {
    SCOPED_TRACE(weights.format);
    const auto model = model_with(weights, inputs, CalibrationMethod::kMse);
    const auto largest = amax_after(*model, {}),
               amax = amax_after(*model, {.method = CalibrationMethod::kMse});
    int others = 0;
    for_each_weight(*model, [&](const Quantizer& each, const Tensor& values, const Tensor& all) {
      const Tensor best =
          quant::least_error_amax(all, quant::squared_errors(each.planned.format, values, all));
      EXPECT_EQ(amax.at(each.planned.name), values_of(best)) << each.planned.name;
      others += amax.at(each.planned.name) != largest.at(each.planned.name) ? 1 : 0;
    });
    EXPECT_GT(others, 0);
    for (const auto& [name, values] : inputs_of(*model)) {
      const Quantizer& each = *model->decoder.quantizers().find(name);
      const double expected = each.planned.format.has_blocks()
                                  ? largest.at(name)[0]
                                  : quant::least_error_amax(histogram_of(values), each.planned.format);
      EXPECT_EQ(amax.at(name), Doubles{expected}) << name;
    }
  }
}

TEST(AmaxSearches, PercentilesAreOfWeightsAndInputs) {
  const auto model = model_with({"int8", Sharing::kRow}, {"fp8"}, CalibrationMethod::kPercentile);
  const auto amax = amax_after(*model, {.method = CalibrationMethod::kPercentile, .percentile = 97});
  for_each_weight(*model, [&](const Quantizer& each, const Tensor& values, const Tensor& all) {
    for (int64_t i = 0; i < all.numel(); ++i)
      EXPECT_EQ(amax.at(each.planned.name)[static_cast<size_t>(i)],
                quant::percentile_amax(quant::histogram_of(values, all, i), 97))
          << each.planned.name << " " << i;
  });
  const auto inputs = inputs_of(*model);
  EXPECT_EQ(inputs.size(), 4u);
  for (const auto& [name, values] : inputs)
    EXPECT_EQ(amax.at(name), Doubles{quant::percentile_amax(histogram_of(values), 97)}) << name;
}

// What quant/ finds of each weight.
quant::Bounds searched_ends(const Quantizer& each, const Tensor& values, const quant::Bounds& all, bool mse) {
  if (mse) {
    const auto errors = quant::squared_errors(each.planned.format.element, values, all);
    return {quant::least_error_amax(all.low, errors), quant::least_error_amax(all.high, errors)};
  }
  const quant::Bounds best{all.low.clone(MemoryTag::kData), all.high.clone(MemoryTag::kData)};
  for (int64_t i = 0; i < all.low.numel(); ++i) {
    const quant::Ends ends = quant::percentile_ends(quant::histogram_of(values, all, i), 80);
    best.low.data<float>()[i] = ends.low;
    best.high.data<float>()[i] = ends.high;
  }
  return best;
}

// Both ends of ranges, where integers have zero points.
TEST(AmaxSearches, EndsOfRangesAreSearchedFor) {
  const QuantizerKind weights{"int4", Sharing::kBlock, 16, false, "", false},
      inputs{"int8", Sharing::kTensor, 0, false, "", false};
  for (const auto method : {CalibrationMethod::kMse, CalibrationMethod::kPercentile}) {
    SCOPED_TRACE(quantizers::name_of(method));
    const bool mse = method == CalibrationMethod::kMse;
    const auto model = model_with(weights, inputs, method);
    CalibrationOptions options{.method = method, .percentile = 80};
    const auto high = amax_after(*model, options);
    for_each_weight(*model, [&](const Quantizer& each, const Tensor& values, const Tensor&) {
      const quant::Bounds all = quant::bounds_of(values, each.planned.amax),
                          best = searched_ends(each, values, all, mse);
      EXPECT_EQ(high.at(each.planned.name), values_of(best.high)) << each.planned.name;
      EXPECT_EQ(values_of(each.low), values_of(best.low)) << each.planned.name;
      EXPECT_NE(values_of(best.low), values_of(all.low)) << each.planned.name;
    });
    for (const auto& [name, values] : inputs_of(*model)) {
      const auto [least, largest] = std::ranges::minmax_element(values);
      quant::Histogram histogram(quant::Ends{std::min(*least, 0.f), std::max(*largest, 0.f)});
      histogram.count(values);
      const Quantizer& each = *model->decoder.quantizers().find(name);
      const quant::Ends ends = mse ? quant::least_error_ends(histogram, each.planned.format.element)
                                   : quant::percentile_ends(histogram, 80);
      EXPECT_EQ(high.at(name), Doubles{ends.high}) << name;
      EXPECT_EQ(values_of(each.low), Doubles{ends.low}) << name;
      EXPECT_LT(ends.high, *largest) << name;
    }
    options.micro_batch_tokens = 12;
    EXPECT_EQ(amax_after(*model, options), high);
  }
}

TEST(AmaxSearches, EntropyIsOfInputsAlone) {
  const auto model = model_with({"int8", Sharing::kRow}, {"int8"}, CalibrationMethod::kEntropy);
  const auto largest = amax_after(*model, {}),
             amax = amax_after(*model, {.method = CalibrationMethod::kEntropy});
  for (const auto& [name, values] : inputs_of(*model))
    EXPECT_EQ(amax.at(name), Doubles{quant::least_divergence_amax(histogram_of(values), 8)}) << name;
  for_each_weight(*model, [&](const Quantizer& each, const Tensor&, const Tensor&) {
    EXPECT_EQ(amax.at(each.planned.name), largest.at(each.planned.name));
  });
}

// Histograms have the range of all rows, so that micro-batches change nothing.
TEST(AmaxSearches, MicroBatchesChangeNothing) {
  for (const auto method :
       {CalibrationMethod::kMse, CalibrationMethod::kPercentile, CalibrationMethod::kEntropy}) {
    const auto model = model_with({"int8", Sharing::kRow}, {"int8"}, method);
    const auto whole = amax_after(*model, {.method = method, .percentile = 95});
    EXPECT_EQ(amax_after(*model, {.method = method, .percentile = 95, .micro_batch_tokens = 12}), whole);
  }
}

TEST(AmaxSearches, EntropyNeedsInputsInIntegers) {
  EXPECT_EQ(error_of([&] { model_with({"fp8"}, {"fp8"}, CalibrationMethod::kEntropy); }),
            "[quantize.calibration] entropy compares levels of integers, and "
            "layers.0.attention.qkv.input_quantizer is fp8: write calibration: mse, or percentile");
  EXPECT_EQ(error_of([&] { model_with({"fp8"}, {}, CalibrationMethod::kEntropy); }),
            "[quantize.calibration] entropy is for inputs that are calibrated, and there are none: write "
            "calibration: mse, or percentile");
}

}  // namespace
}  // namespace temper::calibration
