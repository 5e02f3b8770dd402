// Adapters that are merged into quantized folders, in the form of the folder.
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "models/export.h"
#include "quant/number_format.h"
#include "quant/zero_points.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_amax.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using checkpoints::MergedForm;
using checkpoints::ModelFolder;
using layers::QuantizeOptions;
using layers::Quantizer;
using layers::QuantizerKind;
using op_testing::Doubles;
using op_testing::values_of;

// Fake quantization of a weight; of integers with the scale that files have, where training divides by its
// inverse.
Doubles faked(const Quantizer& quantizer, const Tensor& value) {
  const quant::Format& format = quantizer.planned.format;
  const Tensor values = value.to(DType::kF32).reshape(quantizer.planned.values);
  if (quantizer.planned.has_zero_points())
    return values_of(quant::decode_with_zeros(
        format.element, quant::encode_with_zeros("", format.element, values, {quantizer.low, quantizer.amax}),
        DType::kF32));
  if (format.scaling != quant::Scaling::kIntegers) {
    const ops::BoundOps bound = op_testing::bind_kernel<ops::FakeQuantize>("eager", {DType::kF32, format});
    Tape tape(false);
    const ops::OfParameter how{.shape = values.shape(), .again = layers::second_rounding(quantizer)};
    return values_of(
        ops::fake_quantize_parameter(tape, bound, tape.constant(values), quantizer.amax, format, how).value);
  }
  const quant::Groups groups = quant::groups_of("", values.shape(), quantizer.amax.shape());
  Doubles all;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const float amax =
        quantizer.amax.data<float>()[groups.first(i / groups.columns) + i % groups.columns / groups.width()];
    const float code =
        quant::round_to(format.element, values.data<float>()[i] * (format.element.largest / amax));
    all.push_back(code * (amax / format.element.largest));
  }
  return all;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

class MergedQuantized : public testing::Test {
 protected:
  // A quantized folder, an adapter of it, and both merged, in numbers and in codes.
  void make(const char* type, const QuantizeOptions& quantize, const LoraConfig& lora) {
    const TinyModel tiny{.type = type,
                         .quantize = quantize,
                         .sizes = {{"vocab_size", 16},
                                   {"hidden_size", 128},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 64},
                                   {"intermediate_size", 256},
                                   {"moe_intermediate_size", 128},
                                   {"num_experts", 3},
                                   {"num_experts_per_tok", 2}}};
    const auto model = tiny_model(tiny);
    set_made_up_amax(*model);
    export_model(*model, out_ / "base", "", form_);
    make_adapter(lora);
    merge(MergedForm::kPlain, "numbers");
    merge(MergedForm::kAsBase, "codes");
  }
  void make_adapter(const LoraConfig& lora) {
    const auto base = load_model(out_ / "base", {});
    const auto adapter = new_adapter(*base, lora, 1, "");
    for (size_t i = 0; i < adapter->parameters().size(); ++i) {
      const auto values = adapter->parameters()[i].value.values<float>();
      for (size_t k = 0; k < values.size(); ++k)
        values[k] += 0.2f * std::sin(static_cast<float>(k * 7 + i * 3 + 1));
    }
    save_adapter(*adapter, out_ / "adapter", "");
  }
  void merge(MergedForm form, const std::string& name) {
    merge_adapter(out_ / "adapter", out_ / "base", out_ / name, 1 << 30, form);
  }
  ModelFolder open(const std::string& name) const { return ModelFolder::open(out_ / name); }

  // Weights of which everything has changed are read back as the fake quantization of the merged numbers, all
  // others as the base's; returns how many are read so.
  int check_values(const QuantizeOptions& quantize, const std::set<std::string>& changed) {
    BuildOptions options;
    options.quantize = quantize;
    options.ops = ops::all_eager();
    const auto numbers = load_model(out_ / "numbers", options);
    set_made_up_amax(*numbers);
    const auto codes = load_model(out_ / "codes", {}), base = load_model(out_ / "base", {});
    int checked = 0;
    for (const Quantizer& each : numbers->decoder.quantizers().all()) {
      if (each.planned.of_input) continue;
      const std::string& name = each.planned.weight;
      const Doubles read = values_of(codes->decoder.parameters().value(name));
      const Tensor& merged = numbers->decoder.parameters().at(name).value;
      checked += changed.contains(name.substr(9)) ? 1 : 0;
      if (changed.contains(name.substr(9)))
        EXPECT_TRUE(read == faked(each, merged)) << name;
      else
        EXPECT_TRUE(read == values_of(base->decoder.parameters().value(name))) << name;
    }
    return checked;
  }

  TemporaryDirectory out_;
  ExportForm form_ = ExportForm::kModelopt;
};

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

// Both ends of the ranges are those of the merged weights.
TEST_F(MergedQuantized, FoldersWithZeroPoints) {
  using layers::Sharing;
  const auto asymmetric = [](const char* format, Sharing sharing, int64_t block = 0) {
    return QuantizerKind{format, sharing, block, false, "", false};
  };
  for (const auto& [weights, inputs] :
       {std::pair{asymmetric("int4", Sharing::kBlock, 32), QuantizerKind{}},
        {asymmetric("int4", Sharing::kRow), {}},
        {asymmetric("int8", Sharing::kRow), {}},
        {asymmetric("int8", Sharing::kBlock, 64), {}},
        {asymmetric("int8", Sharing::kRow), asymmetric("int8", Sharing::kTensor)},
        {{"int8", Sharing::kRow}, asymmetric("int8", Sharing::kTensor)}}) {
    SCOPED_TRACE(fmt::format("{} per {}", weights.format, weights.block));
    for (const char* made : {"base", "adapter", "numbers", "codes"}) remove_all(out_ / made);
    const QuantizeOptions quantize{"", {{"layers.*", weights, inputs}}};
    form_ = ExportForm::kCompressedTensors;
    make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj", "k_proj", "v_proj", "down_proj"}}});
    EXPECT_EQ(check_values(quantize, {"attention.qkv.weight", "mlp.down.weight"}), 2);
    const ModelFolder base = open("base"), codes = open("codes");
    EXPECT_EQ(codes.config(), base.config());
    EXPECT_EQ(codes.names().size(), base.names().size());
    int64_t other_zeros = 0;
    for (const std::string& name : base.names()) {
      const checkpoints::TensorEntry *a = base.find(name), *b = codes.find(name);
      ASSERT_NE(b, nullptr) << name;
      EXPECT_EQ(std::pair(a->dtype, a->shape), std::pair(b->dtype, b->shape)) << name;
      const bool same = same_bytes(base.tensor(name), codes.tensor(name));
      if (name.find("o_proj") != std::string::npos || name.find(".input_") != std::string::npos) {
        EXPECT_TRUE(same) << name;
      }
      other_zeros += name.ends_with("weight_zero_point") && !same ? 1 : 0;
    }
    EXPECT_EQ(other_zeros, weights.symmetric ? 0 : 4);
  }
}

// Zero points that are all 0 may belong to symmetric integers, of which readers expect no others.
TEST_F(MergedQuantized, ZeroPointsThatAreAllZeroAreRefused) {
  const QuantizerKind int8{"int8", layers::Sharing::kRow, 0, false, "", false};
  const QuantizeOptions quantize{"", {{"layers.*", int8, {}}}};
  form_ = ExportForm::kCompressedTensors;
  make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj"}}});
  const std::string file = out_ / "base/model.safetensors";
  std::vector<checkpoints::TensorInfo> infos;
  std::vector<Tensor> tensors;
  for (const ModelFolder base = open("base"); const std::string& name : base.names()) {
    Tensor tensor = base.tensor(name).clone(MemoryTag::kData);
    if (name.ends_with("q_proj.weight_zero_point"))  // codes of 0 in words
      for (int32_t& word : tensor.values<int32_t>()) word = static_cast<int32_t>(0x80808080u);
    infos.push_back({name, tensor.shape(), tensor.dtype()});
    tensors.push_back(std::move(tensor));
  }
  checkpoints::SafetensorsWriter writer(file, infos);
  for (const Tensor& tensor : tensors) writer.add(tensor);
  writer.close();
  remove_all(out_ / "codes");
  expect_has(
      error_of([&] { merge(MergedForm::kAsBase, "codes"); }),
      "'model.layers.0.self_attn.q_proj.weight' is quantized as compressed-tensors pack-quantized, which is "
      "read, but not written: leave out --quantized");
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
