// Training with integers that have zero points: what passes compute with, and the ranges that calibration
// finds.
#include "quant/zero_points.h"

#include <algorithm>
#include <cmath>

#include "calibration/calibration.h"
#include "tests/support/decoded.h"
#include "tests/support/errors.h"
#include "tests/support/quantized_run.h"
#include "training/rounded_weights.h"
#include "training/trainer.h"

namespace temper::calibration {
namespace {

using data::PackedRow;
using op_testing::Doubles;
using op_testing::values_of;
using quantizers::QuantizeOptions;
using quantizers::Quantizer;
using quantizers::QuantizerKind;
using quantizers::Sharing;

QuantizerKind asymmetric(const char* format, Sharing sharing, int64_t block = 0, bool dynamic = false) {
  return {format, sharing, block, dynamic, "", false};
}
const std::vector<QuantizerKind>& kinds_of_weights() {
  static const std::vector<QuantizerKind> all{
      asymmetric("int8", Sharing::kTensor),     asymmetric("int8", Sharing::kRow),
      asymmetric("int4", Sharing::kBlock, 16),  asymmetric("int3_narrow", Sharing::kRow),
      asymmetric("uint4", Sharing::kBlock, 16), asymmetric("int5", Sharing::kTile, 16)};
  return all;
}
QuantizeOptions only_weights_in(const char* type, const QuantizerKind& kind) {
  QuantizeOptions options{"", {{"layers.*", kind, {}}}};
  if (std::string_view(type) == "qwen3_moe") options.rules.push_back({"layers.*.mlp.experts.*", kind, {}});
  return options;
}

// Every weight that has a quantizer, in codes and zero points and back.
void take_codes(models::Model& plain, const models::Model& quantized) {
  for (const Quantizer& each : quantized.decoder.quantizers().all()) {
    const Tensor value = plain.decoder.parameters().at(each.planned.weight).value;
    const quant::Element& element = each.planned.format.element;
    const auto encoded = quant::encode_with_zeros(each.planned.weight, element,
                                                  value.reshape(each.planned.values), {each.low, each.amax});
    value.copy_from(quant::decode_with_zeros(element, encoded, value.dtype()).reshape(value.shape()));
  }
}

// Losses and gradients are those of a model with the decoded weights, bit by bit, whatever kernels are taken.
TEST(ZeroPointTraining, ComputesWithTheWeightsThatAreExported) {
  for (const char* type : {"qwen3", "qwen3_moe"})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const char* provider : {"eager", ""})
        for (const QuantizerKind& kind : kinds_of_weights()) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", type, to_string(dtype), provider, kind.format));
          TinyModel tiny{.type = type, .dtype = dtype, .ops = {.fallback = provider}};
          QuantizedRun plain(tiny);
          tiny.quantize = only_weights_in(type, kind);
          QuantizedRun quantized(tiny);
          calibrate(quantized.model->decoder, kQuantizedRows);
          take_codes(*plain.model, *quantized.model);
          EXPECT_TRUE(all_weights(training::rounded_parameters(quantized.model->decoder)) ==
                      all_weights(plain.model->decoder.parameters().placed()));
          EXPECT_EQ(quantized.trainer.step(kQuantizedRows, 0).loss,
                    plain.trainer.step(kQuantizedRows, 0).loss);
          // Nothing is beyond ends that were found in it.
          if (dtype == DType::kF32 && std::string_view(provider).empty()) {
            EXPECT_EQ(quantized.gradients(), plain.gradients());
          }
        }
}

// Each range has the least and the largest value of its group, and zero.
TEST(ZeroPointTraining, RangesOfWeights) {
  QuantizedRun run({.quantize = only_weights_in("qwen3", asymmetric("int4", Sharing::kBlock, 16))});
  const Tensor value = run.model->decoder.parameters().at("layers.1.mlp.down.weight").value;
  for (int64_t i = 0; i < 32; ++i)
    value.data<float>()[i] = i < 16 ? 1.0f + 0.1f * float(i) : -2.0f - float(i);
  const Calibration found = calibrate(run.model->decoder, {});
  EXPECT_EQ(found.weights, 8);
  const Quantizer& weight = run.at("layers.1.mlp.down.weight_quantizer");
  const Doubles values = values_of(value), low = values_of(weight.low), high = values_of(weight.amax);
  ASSERT_EQ(low.size() * 16, values.size());
  for (size_t group = 0; group < low.size(); ++group) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(16 * group);
    EXPECT_EQ(low[group], std::min(0., *std::min_element(begin, begin + 16)));
    EXPECT_EQ(high[group], std::max(0., *std::max_element(begin, begin + 16)));
  }
  EXPECT_EQ(low[0], 0);
  EXPECT_EQ(high[1], 0);
}

// What updates move beyond a range is clipped, and has no gradient.
TEST(ZeroPointTraining, WeightsThatLeaveTheirRangeHaveNoGradient) {
  QuantizedRun run({.quantize = only_weights_in("qwen3", asymmetric("int8", Sharing::kTensor))});
  calibrate(run.model->decoder, {});
  const Tensor value = run.model->decoder.parameters().at("layers.0.mlp.down.weight").value;
  const Quantizer& weight = run.at("layers.0.mlp.down.weight_quantizer");
  const float low = *weight.low.data<float>(), high = *weight.amax.data<float>();
  value.data<float>()[0] = low;
  value.data<float>()[1] = low * 1.01f;
  value.data<float>()[2] = high;
  value.data<float>()[3] = high * 1.01f;
  run.trainer.step(kQuantizedRows, 0);
  const auto index = run.model->decoder.parameters().index_of("layers.0.mlp.down.weight");
  const Doubles grads = run.gradients()[index];
  EXPECT_NE(grads[0], 0);
  EXPECT_EQ(grads[1], 0);
  EXPECT_NE(grads[2], 0);
  EXPECT_EQ(grads[3], 0);
}

QuantizeOptions inputs_in(const char* modules, const QuantizerKind& inputs) {
  return {"", {{modules, QuantizerKind{}, inputs}}};
}

// Calibrated, found in each pass or by each token, of linears and of experts: kernels round alike, and eight
// bits of the whole range lose less than those of both sides.
TEST(ZeroPointTraining, InputsAreRounded) {
  for (const char* modules : {"layers.*.attention.*", "layers.*.mlp.experts.*"})
    for (const auto& [sharing, dynamic] :
         {std::pair{Sharing::kTensor, false}, {Sharing::kTensor, true}, {Sharing::kRow, true}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", modules, static_cast<int>(sharing), dynamic));
      TinyModel tiny{.type = "qwen3_moe"};
      const double exact = QuantizedRun(tiny).trainer.evaluate(kQuantizedRows).loss;
      tiny.quantize = inputs_in(modules, asymmetric("int3", sharing, 0, dynamic));
      std::vector<double> losses;
      for (const char* provider : {"eager", ""}) {
        tiny.ops = {.fallback = provider};
        QuantizedRun run(tiny);
        const Calibration found = calibrate(run.model->decoder, kQuantizedRows);
        EXPECT_EQ(found.inputs > 0, !dynamic);
        losses.push_back(run.trainer.evaluate(kQuantizedRows).loss);
        EXPECT_GT(run.trainer.step(kQuantizedRows, 0).grad_norm, 0);
      }
      EXPECT_NE(losses[0], exact);
      EXPECT_NEAR(losses[0], exact, 0.2 * exact);
      EXPECT_NEAR(losses[1], losses[0], 2e-3 * exact);
    }
}

// Inputs of down are what swiglu gives, of either sign: over all rows, whatever passes they are in.
TEST(ZeroPointTraining, RangesOfInputsAreThoseOfAllRows) {
  TinyModel tiny{.quantize = inputs_in("layers.*.mlp.down", asymmetric("int8", Sharing::kTensor))};
  std::vector<Doubles> ends;
  for (const int64_t tokens : {0, 12}) {
    QuantizedRun run(tiny);
    calibrate(run.model->decoder, kQuantizedRows, {.micro_batch_tokens = tokens});
    const Quantizer& input = run.at("layers.1.mlp.down.input_quantizer");
    ends.push_back({*input.low.data<float>(), *input.amax.data<float>()});
    EXPECT_LT(ends.back()[0], 0);
    EXPECT_GT(ends.back()[1], 0);
    EXPECT_NE(ends.back()[0], -ends.back()[1]);
  }
  EXPECT_EQ(ends[0], ends[1]);
}

// An expert without a token takes the widest range of its layer's inputs; one whose inputs have one sign
// keeps its own.
TEST(ZeroPointTraining, IdleExpertsTakeTheWidestRange) {
  QuantizedRun run({.type = "qwen3_moe",
                    .quantize = inputs_in("layers.*.mlp.experts.*", asymmetric("int8", Sharing::kTensor))});
  const Calibration found = calibrate(run.model->decoder, {test_row(1, {1})});
  ASSERT_EQ(found.idle_experts.size(), 2u);
  const Quantizer& input = run.at("layers.0.mlp.experts.gate_up.input_quantizer");
  const Doubles low = values_of(input.low), high = values_of(input.amax);
  ASSERT_EQ(low.size(), 6u);
  EXPECT_LT(low[0], 0);
  EXPECT_GT(high[0], 0);
  // Top 2 of 6 for one token: its two experts have seen the same input.
  for (size_t e = 1; e < low.size(); ++e) {
    EXPECT_EQ(low[e], low[0]);
    EXPECT_EQ(high[e], high[0]);
  }
}

TEST(ZeroPointTraining, RefusesValuesThatAreNotFinite) {
  const QuantizerKind int8 = asymmetric("int8", Sharing::kTensor);
  QuantizedRun run({.quantize = {"", {{"layers.*", int8, int8}}}});
  float* const value = run.model->decoder.parameters().at("layers.1.mlp.down.weight").value.data<float>();
  for (const auto& [bad, end] :
       {std::pair{INFINITY, "an upper end of inf"}, {-INFINITY, "a lower end of -inf"}}) {
    value[3] = bad;
    EXPECT_EQ(
        error_of([&] { calibrate(run.model->decoder, kQuantizedRows); }),
        fmt::format("[quantize] layers.1.mlp.down.weight_quantizer found {}: the weight has values that "
                    "are not finite",
                    end));
  }
  value[3] = NAN;
  EXPECT_NE(error_of([&] { calibrate(run.model->decoder, kQuantizedRows); }), "");
}

}  // namespace
}  // namespace temper::calibration
