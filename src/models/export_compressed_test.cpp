// Folders in the form of compressed-tensors: the codes and scales of those in the form of nvidia-modelopt.
#include "models/export_compressed.h"

#include <cmath>

#include "base/files.h"
#include "models/export.h"
#include "quant/groups.h"
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

// What readers ask for of a module, by the format that the configuration names.
struct Expected {
  const char* preset;
  const char* format;
  std::vector<std::string> endings;
  bool reciprocal = false;  // the scale of the whole is stored as one: a rounding lies between
};
const std::vector<Expected> kExpected{
    {"FP8_DEFAULT", "float-quantized", {"input_scale", "weight", "weight_scale"}},
    {"FP8_PER_CHANNEL_PER_TOKEN", "float-quantized", {"weight", "weight_scale"}},
    {"FP8_2D_BLOCKWISE_WEIGHT_ONLY", "float-quantized", {"weight", "weight_scale"}},
    {"INT8_DEFAULT", "int-quantized", {"input_scale", "weight", "weight_scale"}},
    {"INT8_WEIGHT_ONLY", "pack-quantized", {"weight_packed", "weight_scale", "weight_shape"}},
    {"INT4_BLOCKWISE_WEIGHT_ONLY", "pack-quantized", {"weight_packed", "weight_scale", "weight_shape"}},
    {"NVFP4_DEFAULT",
     "nvfp4-pack-quantized",
     {"input_global_scale", "weight_global_scale", "weight_packed", "weight_scale"},
     true},
    {"W4A16_NVFP4", "nvfp4-pack-quantized", {"weight_global_scale", "weight_packed", "weight_scale"}, true},
    {"MXFP8_DEFAULT", "mxfp8-quantized", {"weight", "weight_scale"}},
    {"MXFP4_DEFAULT", "mxfp4-pack-quantized", {"weight_packed", "weight_scale"}}};

TEST(ExportCompressed, FoldersMeanWhatThoseOfModeloptMean) {
  for (const Expected& expected : kExpected) {
    SCOPED_TRACE(expected.preset);
    const auto model = model_to_export({expected.preset});
    const TemporaryDirectory out;
    export_model(*model, out / "modelopt", "");
    export_model(*model, out / "compressed", "", ExportForm::kCompressedTensors);
    const Json config = Json::parse_file(out / "compressed/config.json").at("quantization_config");
    EXPECT_EQ(config.at("format").as_string(), expected.format);
    EXPECT_FALSE(exists(out / "compressed/hf_quant_config.json"));
    std::vector<std::string> endings;
    const std::string module = "model.layers.0.self_attn.k_proj.";
    const ModelFolder folder = ModelFolder::open(out / "compressed");
    for (const std::string& name : folder.names())
      if (name.starts_with(module)) endings.push_back(name.substr(module.size()));
    std::sort(endings.begin(), endings.end());
    EXPECT_EQ(endings, expected.endings);

    const auto a = load_model(out / "modelopt", {}), b = load_model(out / "compressed", {});
    for (const WeightSpec& spec : a->decoder.parameters().table().specs()) {
      const auto want = values_of(a->decoder.parameters().value(spec.name)),
                 read = values_of(b->decoder.parameters().value(spec.name));
      if (!expected.reciprocal || !spec.quantize) {
        EXPECT_TRUE(read == want) << spec.name;
        continue;
      }
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_LE(std::fabs(read[i] - want[i]), 3 * 0x1p-24 * std::fabs(want[i])) << spec.name << " " << i;
    }
  }
}

TEST(ExportCompressed, ConfigurationsSayHowWeightsAndInputsAreRounded) {
  const auto group = [](const QuantizeOptions& options) {
    const TemporaryDirectory out;
    export_model(*model_to_export(options), out / "m", "", ExportForm::kCompressedTensors);
    const Json config = Json::parse_file(out / "m/config.json").at("quantization_config");
    EXPECT_EQ(config.at("config_groups").as_object().size(), 1u);
    return config.at("config_groups").at("group_0");
  };
  const Json fp8 = group({"FP8_DEFAULT"});
  EXPECT_EQ(fp8.at("targets").dump(), R"(["Linear"])");
  EXPECT_EQ(fp8.at("weights").dump(),
            R"({"num_bits": 8, "type": "float", "symmetric": true, "strategy": "tensor", "dynamic": false})");
  EXPECT_EQ(fp8.at("input_activations").dump(), fp8.at("weights").dump());
  EXPECT_EQ(group({"FP8_PER_CHANNEL_PER_TOKEN"}).at("input_activations").dump(),
            R"({"num_bits": 8, "type": "float", "symmetric": true, "strategy": "token", "dynamic": true})");
  EXPECT_EQ(group({"FP8_2D_BLOCKWISE_WEIGHT_ONLY"}).at("weights").at("block_structure").dump(), "[128, 128]");
  const Json int8 = group({"INT8_DEFAULT"});
  EXPECT_EQ(int8.at("weights").at("strategy").as_string(), "channel");
  EXPECT_EQ(int8.at("input_activations").at("strategy").as_string(), "tensor");
  const Json int4 = group({"INT4_BLOCKWISE_WEIGHT_ONLY"});
  EXPECT_EQ(int4.at("weights").at("group_size").as_int(), 128);
  EXPECT_TRUE(int4.at("input_activations").is_null());
  const Json nvfp4 = group({"NVFP4_DEFAULT"});
  EXPECT_EQ(nvfp4.at("weights").at("strategy").as_string(), "tensor_group");
  EXPECT_EQ(nvfp4.at("input_activations").at("dynamic").as_string(), "local");
  EXPECT_TRUE(group({"W4A16_NVFP4"}).at("input_activations").is_null());
  EXPECT_TRUE(group({"MXFP4_DEFAULT"}).at("input_activations").at("dynamic").as_bool());
}

TEST(ExportCompressed, SeveralFormatsAreGroupsOfTheirModules) {
  const TemporaryDirectory out;
  const QuantizerKind fp8{"fp8"}, none{};
  export_model(*model_to_export({"W4A16_NVFP4",
                                 {{"layers.0.mlp.*", fp8, fp8}, {"layers.0.attention.output", none, none}}}),
               out / "m", "", ExportForm::kCompressedTensors);
  const Json config = Json::parse_file(out / "m/config.json").at("quantization_config");
  EXPECT_EQ(config.at("format").as_string(), "mixed-precision");
  std::map<std::string, std::string> targets;
  for (const auto& [name, group] : config.at("config_groups").as_object())
    targets[group.at("format").as_string()] = group.at("targets").dump();
  EXPECT_EQ(
      targets.at("float-quantized"),
      R"(["model.layers.0.mlp.down_proj", "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"])");
  EXPECT_EQ(targets.at("nvfp4-pack-quantized"),
            R"(["model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.q_proj", )"
            R"("model.layers.0.self_attn.v_proj"])");
  expect_has(config.at("ignore").dump(), "\"model.layers.0.self_attn.o_proj\"");
  load_model(out / "m", {});
}

TEST(ExportCompressed, Experts) {
  const auto model = model_to_export(
      {"", {{"layers.*.mlp.experts.*", QuantizerKind{"int4", quantizers::Sharing::kBlock, 32}, {}}}},
      "qwen3_moe");
  const TemporaryDirectory out;
  export_model(*model, out / "modelopt", "");
  export_model(*model, out / "compressed", "", ExportForm::kCompressedTensors);
  const auto a = load_model(out / "modelopt", {}), b = load_model(out / "compressed", {});
  for (const WeightSpec& spec : a->decoder.parameters().table().specs())
    EXPECT_TRUE(values_of(a->decoder.parameters().value(spec.name)) ==
                values_of(b->decoder.parameters().value(spec.name)))
        << spec.name;
}

TEST(ExportCompressed, FormsThatItHasNotAreRefused) {
  const TemporaryDirectory out;
  for (const char* algorithm : {"W4A8_MXFP4_FP8", "W4A8_AWQ"})
    expect_has(
        error_of([&] {
          export_model(*model_to_export({algorithm}), out / "m", "", ExportForm::kCompressedTensors);
        }),
        fmt::format("[export] model.layers.0.mlp.down_proj is {}, which compressed-tensors has no form of: "
                    "export it in the form of modelopt",
                    algorithm));
  EXPECT_FALSE(exists(out / "m"));
}

}  // namespace
}  // namespace temper::models
