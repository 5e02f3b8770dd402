#include "recipes/setup/quantizer_state.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "calibration/calibration.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

using op_testing::values_of;
using quantizers::QuantizeOptions;
using quantizers::QuantizerKind;

const QuantizeOptions kFp8{"", {{"layers.*", QuantizerKind{"fp8"}, {}}}};

class QuantizerState : public testing::Test {
 protected:
  static std::unique_ptr<models::Model> made(const QuantizeOptions& options) {
    return tiny_model({.type = "qwen3_moe", .quantize = options});
  }
  checkpoints::StateReader saved(const models::Model& model) {
    checkpoints::StateWriter writer(folder.path(), ++step);
    owned_quantizers(model.decoder.quantizers()).add_to(writer, kQuantizers, 0, 1);
    return checkpoints::StateReader::open(writer.commit());
  }
  std::string refusal(const checkpoints::StateReader& state, const QuantizeOptions& options) {
    const auto model = made(options);
    return error_of([&] { read_quantizers(state, model->decoder.quantizers()); });
  }

  TemporaryDirectory folder;
  int64_t step = 0;
};

TEST_F(QuantizerState, EveryAmaxIsReadBackByTheNumberOfItsExpert) {
  const auto model = made(kFp8), other = made(kFp8);
  calibration::calibrate(model->decoder, {test_row(1, {9})});
  const checkpoints::StateReader state = saved(*model);
  const checkpoints::SafetensorsFile file = state.tensors("quantizers.safetensors");
  EXPECT_EQ(file.entries().size(), 2u * (2 + 2 * 6));
  for (int e = 0; e < 6; ++e) {
    const std::string name = fmt::format("layers.1.mlp.experts.down.weight_quantizer.{}._amax", e);
    ASSERT_NE(file.find(name), nullptr) << name;
    const auto all =
        values_of(model->decoder.quantizers().find("layers.1.mlp.experts.down.weight_quantizer")->amax);
    EXPECT_EQ(values_of(file.tensor(name)), op_testing::Doubles{all[static_cast<size_t>(e)]});
  }
  EXPECT_FALSE(other->decoder.quantizers().ready());
  read_quantizers(state, other->decoder.quantizers());
  EXPECT_TRUE(other->decoder.quantizers().ready());
  const auto expected = model->decoder.quantizers().state(), found = other->decoder.quantizers().state();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(values_of(found[i].values), values_of(expected[i].values)) << expected[i].name;
}

TEST_F(QuantizerState, FactorsOfColumnsAreReadBack) {
  const QuantizeOptions smooth{
      "",
      {{"layers.*.attention.*", QuantizerKind{"int8", quantizers::Sharing::kRow}, QuantizerKind{"int8"}}},
      true,
      quantizers::CalibrationMethod::kSmoothQuant};
  const auto model = made(smooth), other = made(smooth);
  calibration::CalibrationOptions options{.method = smooth.calibration};
  calibration::calibrate(model->decoder, {test_row(1, {9})}, options);
  const checkpoints::StateReader state = saved(*model);
  const checkpoints::SafetensorsFile file = state.tensors("quantizers.safetensors");
  EXPECT_EQ(file.entries().size(), 4u * 3);
  const quantizers::Quantizer& weight =
      *model->decoder.quantizers().find("layers.1.attention.output.weight_quantizer");
  const std::string name = "layers.1.attention.output.input_quantizer._pre_quant_scale";
  EXPECT_EQ(values_of(file.tensor(name)), values_of(weight.columns.whole));
  EXPECT_EQ(file.tensor(name).shape(), (Shape{weight.columns.whole.dim(-1)}));
  read_quantizers(state, other->decoder.quantizers());
  for (size_t i = 0; i < model->decoder.quantizers().all().size(); ++i) {
    const quantizers::Quantizer &expected = model->decoder.quantizers().all()[i],
                                &found = other->decoder.quantizers().all()[i];
    EXPECT_EQ(values_of(found.amax), values_of(expected.amax));
    if (!expected.columns.exist()) continue;
    EXPECT_EQ(values_of(found.columns.pre_quant), values_of(expected.columns.pre_quant));
    EXPECT_EQ(values_of(found.columns.inverse), values_of(expected.columns.inverse));
  }
  QuantizeOptions plain = smooth;
  plain.calibration = quantizers::CalibrationMethod::kMax;
  EXPECT_NE(refusal(state, plain).find("_pre_quant_scale', which no quantizer of this run reads"),
            std::string::npos);
}

// Both ends of a range, of each expert by its number, bit by bit.
TEST_F(QuantizerState, EndsOfRangesAreReadBack) {
  const QuantizerKind own{"int4", quantizers::Sharing::kBlock, 16, false, "", false},
      inputs{"int8", quantizers::Sharing::kTensor, 0, false, "", false};
  const QuantizeOptions zeros{"", {{"layers.*", own, inputs}}};
  const auto model = made(zeros), other = made(zeros);
  calibration::calibrate(model->decoder, {test_row(1, {9})});
  const checkpoints::StateReader state = saved(*model);
  const checkpoints::SafetensorsFile file = state.tensors("quantizers.safetensors");
  EXPECT_EQ(file.entries().size(), 2u * 2 * 2 * (2 + 2 * 6));
  const quantizers::Quantizer& down =
      *model->decoder.quantizers().find("layers.1.mlp.experts.down.weight_quantizer");
  for (const auto& [end, kept] : {std::pair{"_low", down.low}, {"_high", down.amax}})
    for (int e = 0; e < 6; ++e) {
      const std::string name = fmt::format("layers.1.mlp.experts.down.weight_quantizer.{}.{}", e, end);
      ASSERT_NE(file.find(name), nullptr) << name;
      EXPECT_EQ(values_of(file.tensor(name)), values_of(kept.narrow(0, e, 1)));
    }
  read_quantizers(state, other->decoder.quantizers());
  const auto expected = model->decoder.quantizers().state(), found = other->decoder.quantizers().state();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(values_of(found[i].values), values_of(expected[i].values)) << expected[i].name;
  QuantizeOptions symmetric = zeros;
  symmetric.rules[0].weights->symmetric = symmetric.rules[0].inputs->symmetric = true;
  EXPECT_NE(
      refusal(state, symmetric)
          .find("has no 'layers.0.attention.qkv.weight_quantizer._amax': it is the checkpoint of another "
                "configuration of quantizers"),
      std::string::npos);
}

TEST_F(QuantizerState, FormatsWithoutAmaxKeepNone) {
  const QuantizeOptions mx{"", {{"layers.*.attention.*", QuantizerKind{"mxfp4"}, {}}}};
  const auto model = made(mx);
  EXPECT_TRUE(model->decoder.quantizers().state().empty());
  const checkpoints::StateReader state = saved(*model);
  EXPECT_FALSE(state.has("quantizers.safetensors"));
  read_quantizers(state, model->decoder.quantizers());
  EXPECT_TRUE(model->decoder.quantizers().ready());
}

TEST_F(QuantizerState, CheckpointsOfAnotherConfigurationAreRefused) {
  const auto model = made(kFp8);
  const checkpoints::StateReader state = saved(*model);
  QuantizeOptions shared = kFp8, channels = kFp8, fewer = kFp8;
  shared.per_expert = false;
  EXPECT_NE(refusal(state, shared)
                .find("has no 'layers.0.mlp.experts.gate_up.weight_quantizer._amax': it is the "
                      "checkpoint of another configuration of quantizers"),
            std::string::npos);
  channels.rules[0].weights->sharing = quantizers::Sharing::kRow;
  EXPECT_NE(refusal(state, channels)
                .find("'layers.0.attention.qkv.weight_quantizer._amax' is float32 [1, 1], "
                      "expected float32 [64, 1]"),
            std::string::npos);
  fewer.rules[0].modules = "layers.0.*";
  EXPECT_NE(refusal(state, fewer)
                .find("has 'layers.1.attention.qkv.weight_quantizer._amax', which no quantizer of "
                      "this run reads"),
            std::string::npos);
  EXPECT_NE(refusal(state, {}).find("which no quantizer of this run reads"), std::string::npos);
}

}  // namespace
}  // namespace temper::recipes
