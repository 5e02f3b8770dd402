// Folders of models with zero points, in the form of compressed-tensors: what training rounds to is what they
// mean.
#include "base/files.h"
#include "models/export.h"
#include "models/export_checks.h"
#include "quant/zero_points.h"
#include "tests/support/decoded.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_amax.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using checkpoints::ModelFolder;
using op_testing::values_of;
using quantizers::QuantizeOptions;
using quantizers::QuantizerKind;
using quantizers::Sharing;

// With heads of a size that words do not divide.
std::unique_ptr<Model> model_with_zeros(const QuantizeOptions& options, const char* type = "qwen3") {
  return model_to_export(options, type, 18);
}

QuantizerKind asymmetric_kind(const char* format, Sharing sharing, int64_t block = 0, bool dynamic = false) {
  return {format, sharing, block, dynamic, "", false};
}

// As compressed-tensors describes integers.
std::string integers_json(int bits, bool symmetric, const std::string& strategy, bool dynamic = false) {
  return fmt::format(
      R"({{"num_bits": {}, "type": "int", "symmetric": {}, "strategy": "{}", {}"dynamic": {}}})", bits,
      symmetric, strategy, strategy == "group" ? R"("group_size": 8, )" : "", dynamic);
}

struct WithZeros {
  const char* name;  // as `temper quantize --dry-run` has it, and how
  QuantizerKind weights, inputs;
  std::vector<std::string> endings;
  std::string weights_json, inputs_json = "null";
};

const std::vector<WithZeros>& weights_with_zeros() {
  const std::vector<std::string> packed{"weight_packed", "weight_scale", "weight_shape", "weight_zero_point"};
  static const std::vector<WithZeros> all{
      {"W4A16_ASYM",
       asymmetric_kind("int4", Sharing::kBlock, 8),
       {},
       packed,
       integers_json(4, false, "group")},
      {"W4A16_ASYM per channel",
       asymmetric_kind("int4", Sharing::kRow),
       {},
       packed,
       integers_json(4, false, "channel")},
      {"W8A16_ASYM", asymmetric_kind("int8", Sharing::kRow), {}, packed, integers_json(8, false, "channel")},
      {"W8A16_ASYM in blocks",
       asymmetric_kind("int8", Sharing::kBlock, 8),
       {},
       packed,
       integers_json(8, false, "group")}};
  return all;
}

const std::vector<WithZeros>& inputs_with_zeros() {
  const QuantizerKind rows{"int8", Sharing::kRow}, asymmetric_rows = asymmetric_kind("int8", Sharing::kRow),
                                                   whole = asymmetric_kind("int8", Sharing::kTensor),
                                                   tokens = asymmetric_kind("int8", Sharing::kRow, 0, true);
  static const std::vector<WithZeros> all{
      {"W8A8",
       rows,
       whole,
       {"input_scale", "input_zero_point", "weight", "weight_scale"},
       integers_json(8, true, "channel"),
       integers_json(8, false, "tensor")},
      {"W8A8",
       rows,
       tokens,
       {"weight", "weight_scale"},
       integers_json(8, true, "channel"),
       integers_json(8, false, "token", true)},
      {"W8A8",
       rows,
       {"int8", Sharing::kRow, 0, true},
       {"weight", "weight_scale"},
       integers_json(8, true, "channel"),
       integers_json(8, true, "token", true)},
      {"W8A8_ASYM",
       asymmetric_rows,
       whole,
       {"input_scale", "input_zero_point", "weight", "weight_scale", "weight_zero_point"},
       integers_json(8, false, "channel"),
       integers_json(8, false, "tensor")},
      {"W8A8_ASYM",
       asymmetric_rows,
       {"int8"},
       {"input_scale", "weight", "weight_scale", "weight_zero_point"},
       integers_json(8, false, "channel"),
       integers_json(8, true, "tensor")}};
  return all;
}

// The values that a folder is read as, of each weight of the table.
void expect_what_training_rounds_to(const Model& model, const std::string& folder) {
  const auto read = load_model(folder, {});
  for (const quantizers::Quantizer& each : model.decoder.quantizers().all()) {
    if (each.planned.of_input || !each.planned.has_zero_points()) continue;
    const Tensor value = model.decoder.parameters().value(each.planned.weight).reshape(each.planned.values);
    const auto encoded = quant::encode_with_zeros(each.planned.weight, each.planned.format.element, value,
                                                  {each.low, each.amax});
    EXPECT_TRUE(values_of(read->decoder.parameters().value(each.planned.weight)) ==
                values_of(quant::decode_with_zeros(each.planned.format.element, encoded, DType::kF32)))
        << each.planned.name;
  }
}

// Inputs become round(x / input_scale) + input_zero_point.
void expect_zero_of_input(const quantizers::Quantizer& input, int64_t place, const ModelFolder& folder,
                          const std::string& module) {
  const quant::ZeroPoint at = quant::zero_point_of(
      input.planned.format.element, input.low.data<float>()[place], input.amax.data<float>()[place]);
  EXPECT_EQ(*folder.tensor(module + "input_scale").data<float>(), at.step);
  EXPECT_EQ(*folder.tensor(module + "input_zero_point").data<int8_t>(), at.zero);
  EXPECT_NE(at.zero, 0);
}

void expect_folder(const WithZeros& expected) {
  SCOPED_TRACE(expected.name);
  const auto model = model_with_zeros({"", {{"layers.*", expected.weights, expected.inputs}}});
  const quantizers::Quantizers& quantizers = model->decoder.quantizers();
  EXPECT_EQ(exported_algorithms(exported_forms(quantizers.plan(), model->decoder.parameters().table())),
            std::string(expected.name) + ", by --form compressed-tensors");
  const TemporaryDirectory out;
  export_model(*model, out / "m", "", ExportForm::kCompressedTensors);
  const Json config = Json::parse_file(out / "m/config.json").at("quantization_config");
  EXPECT_EQ(config.at("format").as_string(),
            expected.endings.front() == "weight_packed" ? "pack-quantized" : "int-quantized");
  EXPECT_EQ(config.at("config_groups").at("group_0").at("weights").dump(), expected.weights_json);
  EXPECT_EQ(config.at("config_groups").at("group_0").at("input_activations").dump(), expected.inputs_json);
  std::vector<std::string> endings;
  const std::string module = "model.layers.0.self_attn.k_proj.";
  const ModelFolder folder = ModelFolder::open(out / "m");
  for (const std::string& name : folder.names())
    if (name.starts_with(module)) endings.push_back(name.substr(module.size()));
  std::sort(endings.begin(), endings.end());
  EXPECT_EQ(endings, expected.endings);
  expect_what_training_rounds_to(*model, out / "m");
  for (const quantizers::Quantizer& each : quantizers.all())
    if (each.planned.name == "layers.0.attention.qkv.input_quantizer" && each.low.defined())
      expect_zero_of_input(each, 0, folder, module);
}

TEST(ExportZeroPoints, FoldersMeanWhatTrainingRoundsTo) {
  for (const auto* const cases : {&weights_with_zeros(), &inputs_with_zeros()})
    for (const WithZeros& each : *cases) expect_folder(each);
}

TEST(ExportZeroPoints, EachExpertHasItsOwn) {
  for (const bool per_expert : {true, false}) {
    const QuantizerKind int8{"int8", Sharing::kRow};
    const auto model =
        model_with_zeros({"",
                          {{"layers.*.attention.*", int8, asymmetric_kind("int8", Sharing::kTensor)},
                           {"layers.*.mlp.experts.*", asymmetric_kind("int8", Sharing::kRow),
                            asymmetric_kind("int8", Sharing::kTensor)}},
                          per_expert},
                         "qwen3_moe");
    const TemporaryDirectory out;
    export_model(*model, out / "m", "", ExportForm::kCompressedTensors);
    expect_what_training_rounds_to(*model, out / "m");
    const quantizers::Quantizer& input =
        *model->decoder.quantizers().find("layers.0.mlp.experts.down.input_quantizer");
    const ModelFolder folder = ModelFolder::open(out / "m");
    for (int64_t e = 0; e < 6; ++e)
      expect_zero_of_input(input, per_expert ? e : 0, folder,
                           fmt::format("model.layers.0.mlp.experts.{}.down_proj.", e));
  }
}

TEST(ExportZeroPoints, WhatReadersDoNotKnowIsRefused) {
  const TemporaryDirectory out;
  const auto refusal = [&](const std::vector<quantizers::QuantizerRule>& rules,
                           ExportForm form = ExportForm::kCompressedTensors) {
    return error_of([&] { export_model(*model_with_zeros({"", rules}), out / "m", "", form); });
  };
  const QuantizerKind int4 = asymmetric_kind("int4", Sharing::kBlock, 8), fp8{"fp8"};
  EXPECT_EQ(
      refusal({{"layers.*", int4, {}}}, ExportForm::kModelopt),
      "[export] layers.0.attention.output.weight_quantizer is int4 with zero points (W4A16_ASYM), which "
      "nvidia-modelopt's folders have no tensors for: write --form compressed-tensors");
  constexpr const char* known =
      ": of integers with zero points readers know int4 and int8 per channel or in blocks alone, and int8 "
      "per "
      "channel with inputs in int8, calibrated or per token";
  EXPECT_EQ(
      refusal({{"layers.*", asymmetric_kind("int8", Sharing::kTensor), {}}}),
      std::string(
          "[export] layers.0.attention.output.weight_quantizer is int8 with zero points per tensor with "
          "inputs that are not quantized") +
          known);
  for (const auto& [weights, inputs] :
       {std::pair{int4, asymmetric_kind("int8", Sharing::kTensor)},
        {asymmetric_kind("uint4", Sharing::kBlock, 8), QuantizerKind{}},
        {asymmetric_kind("int4_narrow", Sharing::kRow), QuantizerKind{}},
        {asymmetric_kind("int3", Sharing::kRow), QuantizerKind{}},
        {asymmetric_kind("int8", Sharing::kRow), fp8},
        {{"int8", Sharing::kRow}, asymmetric_kind("int8", Sharing::kTensor, 0, true)}})
    expect_has(refusal({{"layers.*", weights, inputs}}), known);
  expect_has(refusal({{"layers.*.attention.*", int4, {}}, {"layers.*.mlp.*", QuantizerKind{"mxfp4"}, fp8}}),
             "which only compressed-tensors has, and layers.0.mlp.down.weight_quantizer is W4A8_MXFP4_FP8, "
             "which it has not: no folder has both");
  expect_has(
      refusal({{"layers.*", int4, {}}, {"layers.*.attention.qkv", {}, {}, {}, fp8}}),
      "layers.0.attention.v_bmm_quantizer is a scale of the cache, which it has not: no folder has both");
  EXPECT_FALSE(exists(out / "m"));
}

}  // namespace
}  // namespace temper::models
