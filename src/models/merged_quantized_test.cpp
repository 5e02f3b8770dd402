// Adapters that are merged into quantized folders, in the form of the folder.
#include "models/merged_quantized_test_support.h"
#include "tests/support/decoded.h"
#include "tests/support/errors.h"

namespace temper::models {
namespace {

TEST_F(MergedQuantized, CodesTimesScalesAreTheFakeQuantizationOfBaseAndAdapter) {
  for (const char* preset :
       {"FP8_DEFAULT", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_2D_BLOCKWISE_WEIGHT_ONLY", "INT8_DEFAULT",
        "INT8_WEIGHT_ONLY", "INT4_BLOCKWISE_WEIGHT_ONLY", "NVFP4_DEFAULT", "W4A16_NVFP4", "MXFP8_DEFAULT",
        "MXFP4_DEFAULT", "W4A8_MXFP4_FP8"}) {
    SCOPED_TRACE(preset);
    for (const char* made : {"base", "adapter", "numbers", "codes"}) remove_all(out_ / made);
    const QuantizeOptions quantize{preset};
    make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj", "k_proj", "v_proj", "down_proj"}}});
    EXPECT_EQ(check_values(quantize, {"attention.qkv.weight", "mlp.down.weight"}), 2);
    const ModelFolder base = open("base"), codes = open("codes");
    EXPECT_EQ(codes.config(), base.config());
    EXPECT_EQ(read_file(out_ / "codes/hf_quant_config.json"), read_file(out_ / "base/hf_quant_config.json"));
    ASSERT_EQ(codes.names().size(), base.names().size());
    // Matrices that no adapter changes keep their bytes, and so do scales of inputs.
    int64_t different = 0;
    for (const std::string& name : base.names()) {
      ASSERT_NE(codes.find(name), nullptr) << name;
      const bool same = same_bytes(codes.tensor(name), base.tensor(name));
      const bool may_differ = !name.ends_with("input_scale") &&
                              (name.find("_proj.weight") != std::string::npos) &&
                              name.find("o_proj") == std::string::npos &&
                              name.find("gate") == std::string::npos && name.find("up_") == std::string::npos;
      EXPECT_TRUE(same || may_differ) << name;
      different += same ? 0 : 1;
    }
    EXPECT_GE(different, 4);
  }
}

// q, k and v share a scale of the whole, so that all three are encoded again where one changes.
TEST_F(MergedQuantized, ModulesThatShareAScaleGetANewOneTogether) {
  make("qwen3", {"FP8_DEFAULT"}, {.rank = 2, .alpha = 128, .targets = {.names = {"q_proj"}}});
  EXPECT_EQ(check_values({"FP8_DEFAULT"}, {"attention.qkv.weight"}), 1);
  const ModelFolder base = open("base"), codes = open("codes");
  const std::string q = "model.layers.0.self_attn.q_proj.weight_scale",
                    v = "model.layers.0.self_attn.v_proj.weight_scale";
  EXPECT_TRUE(same_bytes(codes.tensor(q), codes.tensor(v)));
  EXPECT_FALSE(same_bytes(codes.tensor(v), base.tensor(v)));
}

TEST_F(MergedQuantized, ChannelsOfModulesThatDoNotChangeKeepTheirBytes) {
  make("qwen3", {"INT8_WEIGHT_ONLY"}, {.rank = 2, .targets = {.names = {"q_proj"}}});
  const ModelFolder base = open("base"), codes = open("codes");
  for (const char* part : {".weight", ".weight_scale"}) {
    const std::string attention = "model.layers.0.self_attn.";
    EXPECT_FALSE(
        same_bytes(codes.tensor(attention + "q_proj" + part), base.tensor(attention + "q_proj" + part)));
    for (const char* other : {"k_proj", "v_proj", "o_proj"})
      EXPECT_TRUE(same_bytes(codes.tensor(attention + other + part), base.tensor(attention + other + part)));
  }
}

TEST_F(MergedQuantized, EachExpertHasScalesOfItsOwn) {
  const QuantizeOptions quantize{"", {{"layers.*.mlp.experts.*", QuantizerKind{"nvfp4"}, {}}}};
  LoraConfig lora{.rank = 2};
  lora.parameters = {"experts.gate_up_proj", "experts.down_proj"};
  make("qwen3_moe", quantize, lora);
  EXPECT_EQ(check_values(quantize, {"mlp.experts.gate_up.weight", "mlp.experts.down.weight"}), 2);
  const ModelFolder codes = open("codes");
  std::set<double> scales;
  for (int e = 0; e < 3; ++e) {
    const std::string expert = fmt::format("model.layers.0.mlp.experts.{}.", e);
    EXPECT_TRUE(same_bytes(codes.tensor(expert + "gate_proj.weight_scale_2"),
                           codes.tensor(expert + "up_proj.weight_scale_2")));
    scales.insert(values_of(codes.tensor(expert + "up_proj.weight_scale_2"))[0]);
  }
  EXPECT_EQ(scales.size(), 3u);
}

// Modules in several formats, and some in none.
TEST_F(MergedQuantized, MixedFormats) {
  const QuantizerKind fp8{"fp8"}, none{};
  const QuantizeOptions quantize{"W4A16_NVFP4",
                                 {{"layers.0.mlp.*", fp8, fp8}, {"layers.0.attention.output", none, none}}};
  make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj", "o_proj", "up_proj", "down_proj"}}});
  EXPECT_EQ(check_values(quantize, {"attention.qkv.weight", "mlp.gate_up.weight", "mlp.down.weight"}), 3);
  const std::string output = "model.layers.0.self_attn.o_proj.weight";
  EXPECT_TRUE(same_bytes(open("codes").tensor(output), open("numbers").tensor(output)));
  EXPECT_FALSE(same_bytes(open("codes").tensor(output), open("base").tensor(output)));
}

// q, k and v share what they are rounded by again.
TEST_F(MergedQuantized, IntegersThatAreRoundedAgainToFp8) {
  const QuantizeOptions quantize{"W4A8_AWQ"};
  make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj", "k_proj", "v_proj", "down_proj"}}});
  EXPECT_EQ(check_values(quantize, {"attention.qkv.weight", "mlp.down.weight"}), 2);
  const ModelFolder codes = open("codes");
  EXPECT_EQ(codes.config(), open("base").config());
  const std::string attention = "model.layers.0.self_attn.";
  for (const char* other : {"k_proj", "v_proj"})
    EXPECT_TRUE(same_bytes(codes.tensor(attention + "q_proj.weight_scale_2"),
                           codes.tensor(attention + other + ".weight_scale_2")));
  EXPECT_FALSE(same_bytes(codes.tensor(attention + "q_proj.weight_scale_2"),
                          open("base").tensor(attention + "q_proj.weight_scale_2")));
}

// Folders of compressed-tensors: the codes and scales that a folder of nvidia-modelopt gets.
TEST_F(MergedQuantized, FoldersOfCompressedTensors) {
  for (const char* preset :
       {"FP8_DEFAULT", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_2D_BLOCKWISE_WEIGHT_ONLY", "INT8_DEFAULT",
        "INT8_WEIGHT_ONLY", "INT4_BLOCKWISE_WEIGHT_ONLY", "MXFP8_DEFAULT", "MXFP4_DEFAULT"}) {
    SCOPED_TRACE(preset);
    for (const char* made : {"base", "adapter", "numbers", "codes"}) remove_all(out_ / made);
    const QuantizeOptions quantize{preset};
    form_ = ExportForm::kCompressedTensors;
    make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj", "k_proj", "v_proj", "down_proj"}}});
    EXPECT_EQ(check_values(quantize, {"attention.qkv.weight", "mlp.down.weight"}), 2);
    const ModelFolder base = open("base"), codes = open("codes");
    EXPECT_EQ(codes.config(), base.config());
    EXPECT_FALSE(exists(out_ / "codes/hf_quant_config.json"));
    EXPECT_EQ(codes.names().size(), base.names().size());
    for (const std::string& name : base.names()) {
      const checkpoints::TensorEntry *a = base.find(name), *b = codes.find(name);
      ASSERT_NE(b, nullptr) << name;
      EXPECT_EQ(std::pair(a->dtype, a->shape), std::pair(b->dtype, b->shape)) << name;
      if (name.find("o_proj") != std::string::npos || name.ends_with("input_scale")) {
        EXPECT_TRUE(same_bytes(base.tensor(name), codes.tensor(name))) << name;
      }
    }
  }
}

// Of NVFP4 the scale of the whole is stored as its reciprocal: what is read differs by a rounding.
TEST_F(MergedQuantized, FoldersOfCompressedTensorsInNvfp4) {
  form_ = ExportForm::kCompressedTensors;
  make("qwen3", {"NVFP4_DEFAULT"}, {.rank = 2, .targets = {.names = {"down_proj"}}});
  const auto numbers = load_model(out_ / "numbers", {}), codes = load_model(out_ / "codes", {});
  const Tensor value = numbers->decoder.parameters().value("layers.0.mlp.down.weight");
  const quant::Format& format = quant::format_named("nvfp4");
  const auto want = values_of(quant::decode(
                 format, quant::encode("", format, value, quant::amax_of(value, {1, 1})), DType::kF32)),
             read = values_of(codes->decoder.parameters().value("layers.0.mlp.down.weight"));
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::fabs(read[i] - want[i]), 3 * 0x1p-24 * std::fabs(want[i])) << i;
}

// E4M3 of a matrix, and the scales of its tiles of 16 × 16.
class Tiles : public checkpoints::EncodedParameters {
 public:
  std::vector<checkpoints::TensorInfo> list(const WeightSpec& spec) const override {
    std::vector<checkpoints::TensorInfo> infos;
    for (const WeightSource& source : spec.sources) {
      if (!spec.quantize) continue;
      infos.push_back({source.name, {source.rows, spec.shape[1]}, DType::kF8E4M3});
      infos.push_back(
          {source.name + "_scale_inv", {(source.rows + 15) / 16, (spec.shape[1] + 15) / 16}, DType::kF32});
    }
    return infos;
  }
  std::vector<Tensor> encode(const WeightSpec& spec, const Tensor&) const override {
    std::vector<Tensor> all;
    for (const checkpoints::TensorInfo& info : list(spec)) {
      const Tensor tensor = Tensor::zeros(info.shape, info.dtype, MemoryTag::kData);
      if (info.dtype == DType::kF32)
        for (int64_t i = 0; i < tensor.numel(); ++i)
          tensor.data<float>()[i] = 0.003f * static_cast<float>(1 + i % 5);
      else
        for (int64_t i = 0; i < tensor.numel(); ++i)
          static_cast<uint8_t*>(tensor.raw())[i] = static_cast<uint8_t>(i * 37 % 0x70);
      all.push_back(tensor);
    }
    return all;
  }
};

// Tiles of any size, of which the last ones are smaller, as folders of quant_method fp8 have them.
TEST_F(MergedQuantized, FoldersOfTiles) {
  const auto base = tiny_model({.sizes = {{"hidden_size", 40}, {"intermediate_size", 50}}});
  const auto& table = base->decoder.parameters().table();
  const Tiles tiles;
  Json config = base->config;
  config.set("quantization_config",
             Json::parse(R"({"quant_method": "fp8", "weight_block_size": [16, 16]})", ""));
  checkpoints::save_model(out_ / "base", table,
                          [&](const WeightSpec& spec) { return base->decoder.parameters().value(spec.name); },
                          config, {.dtype = DType::kF32, .encoded = &tiles});
  make_adapter({.rank = 2, .targets = {.names = {"down_proj", "k_proj"}}});
  merge(MergedForm::kPlain, "numbers");
  merge(MergedForm::kAsBase, "codes");
  const auto numbers = load_model(out_ / "numbers", {}), codes = load_model(out_ / "codes", {});
  const Tensor merged = numbers->decoder.parameters().value("layers.0.mlp.down.weight");
  ASSERT_EQ(merged.shape(), (Shape{40, 50}));
  const auto read = values_of(codes->decoder.parameters().value("layers.0.mlp.down.weight"));
  for (int64_t i = 0; i < merged.numel(); ++i) {
    float amax = 0;  // of the element's tile
    for (int64_t r = i / 50 / 16 * 16; r < std::min<int64_t>(40, i / 50 / 16 * 16 + 16); ++r)
      for (int64_t c = i % 50 / 16 * 16; c < std::min<int64_t>(50, i % 50 / 16 * 16 + 16); ++c)
        amax = std::max(amax, std::fabs(merged.data<float>()[r * 50 + c]));
    const float by = 448 / amax;
    EXPECT_EQ(read[static_cast<size_t>(i)],
              quant::round_to(quant::kE4M3, merged.data<float>()[i] * by) * (1 / by))
        << i;
  }
  const ModelFolder before = open("base"), after = open("codes");
  EXPECT_EQ(after.config(), before.config());
  for (const std::string& name : before.names())
    if (name.find("layers.0.mlp.gate") != std::string::npos || name.find("q_proj") != std::string::npos) {
      EXPECT_TRUE(same_bytes(before.tensor(name), after.tensor(name))) << name;
    }
}

TEST_F(MergedQuantized, Refusals) {
  save_model(*tiny_model({}), out_ / "base", "");
  make_adapter({.rank = 2});
  expect_has(error_of([&] { merge(MergedForm::kAsBase, "codes"); }),
             "base] has plain values: leave out --quantized");
  for (const char* made : {"base", "adapter"}) remove_all(out_ / made);
  make("qwen3", {"FP8_DEFAULT"}, {.rank = 2});
  Json config = Json::parse_file(out_ / "base/config.json");
  config.set("quantization_config", Json::parse(R"({"quant_method": "fp8"})", ""));
  write_file(out_ / "base/config.json", config.dump());
  remove_all(out_ / "codes");
  expect_has(
      error_of([&] { merge(MergedForm::kAsBase, "codes"); }),
      "base] 'model.layers.0.self_attn.q_proj.weight' is quantized as fp8, which is read, but not written: "
      "leave out --quantized");
  EXPECT_FALSE(exists(out_ / "codes"));
}

}  // namespace
}  // namespace temper::models
