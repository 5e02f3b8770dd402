// Exported folders: what they hold is what training computes with.
#include "models/export.h"
#include "models/adapter.h"

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "quant/number_format.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_amax.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using op_testing::Doubles;
using op_testing::values_of;
using quantizers::QuantizeOptions;
using quantizers::QuantizerKind;

// With an amax of its own for every quantizer: weights' real one, inputs' made up.
std::unique_ptr<Model> calibrated(const QuantizeOptions& options, const char* type = "llama",
                                  DType dtype = DType::kBF16) {
  auto model = tiny_model({.type = type, .dtype = dtype, .quantize = options});
  set_made_up_amax(*model);
  return model;
}

uint8_t byte_at(const Tensor& tensor, int64_t i) { return static_cast<const uint8_t*>(tensor.raw())[i]; }

// A reader's arithmetic, in float32: a code times its scales.
Doubles read_back(const checkpoints::ModelFolder& folder, const std::string& module) {
  const Tensor codes = folder.tensor(module + ".weight");
  const bool fp8 = codes.dtype() == DType::kF8E4M3;
  const float whole = folder.tensor(module + (fp8 ? ".weight_scale" : ".weight_scale_2")).data<float>()[0];
  const int64_t columns = codes.dim(1) * (fp8 ? 1 : 2);
  Doubles values;
  for (int64_t i = 0; i < codes.dim(0) * columns; ++i) {
    if (fp8) {
      values.push_back(quant::number_of(quant::kE4M3, byte_at(codes, i)) * whole);
      continue;
    }
    const uint8_t code = byte_at(codes, i / 2) >> (i % 2 * 4) & 15;
    const float scale =
        quant::number_of(quant::kE4M3, byte_at(folder.tensor(module + ".weight_scale"), i / 16));
    values.push_back(quant::number_of(quant::kE2M1, code) * (scale * whole));
  }
  return values;
}

// What a pass reads of a parameter's rows, in float32.
Doubles faked(Model& model, const std::string& parameter, int64_t row, int64_t rows) {
  const quantizers::Quantizer* quantizer = nullptr;
  for (const quantizers::Quantizer& each : model.decoder.quantizers().all())
    if (each.planned.weight == parameter && !each.planned.of_input) quantizer = &each;
  const Tensor value = model.decoder.parameters().at(parameter).value.to(DType::kF32);
  const ops::BoundOps bound =
      op_testing::bind_kernel<ops::FakeQuantize>("eager", {DType::kF32, quantizer->planned.format});
  Tape tape(false);
  const Tensor y = ops::fake_quantize_parameter(
                       tape, bound, tape.constant(value), quantizer->amax, quantizer->planned.format,
                       {.shape = quantizer->planned.values, .again = quantizers::second_rounding(*quantizer)})
                       .value;
  return values_of(y.reshape(value.shape()).narrow(0, row, rows).contiguous());
}

struct Part {
  const char* module;
  const char* parameter;
  int64_t row, rows;
};

TEST(Export, CodesTimesScalesAreWhatTrainingReads) {
  const QuantizerKind fp8{"fp8"}, nvfp4{"nvfp4"};
  for (const QuantizeOptions& options :
       {QuantizeOptions{"FP8_DEFAULT"}, QuantizeOptions{"NVFP4_DEFAULT"}, QuantizeOptions{"W4A16_NVFP4"}}) {
    SCOPED_TRACE(options.preset);
    const auto model = calibrated(options);
    const TemporaryDirectory out;
    export_model(*model, out / "m", "");
    const auto folder = checkpoints::ModelFolder::open(out / "m");
    for (const Part& part : {Part{"model.layers.0.self_attn.q_proj", "layers.0.attention.qkv.weight", 0, 32},
                             Part{"model.layers.1.self_attn.v_proj", "layers.1.attention.qkv.weight", 48, 16},
                             Part{"model.layers.0.mlp.up_proj", "layers.0.mlp.gate_up.weight", 48, 48},
                             Part{"model.layers.1.mlp.down_proj", "layers.1.mlp.down.weight", 0, 32}})
      EXPECT_EQ(read_back(folder, part.module), faked(*model, part.parameter, part.row, part.rows))
          << part.module;
    EXPECT_EQ(folder.find("model.layers.0.mlp.up_proj.input_scale") != nullptr,
              options.preset != "W4A16_NVFP4");
    // What is fused when it is served shares its scales.
    const std::string scale = options.preset == "FP8_DEFAULT" ? ".weight_scale" : ".weight_scale_2";
    for (const char* other : {"k_proj", "v_proj"})
      EXPECT_EQ(values_of(folder.tensor(std::string("model.layers.0.self_attn.") + other + scale)),
                values_of(folder.tensor("model.layers.0.self_attn.q_proj" + scale)));
    EXPECT_EQ(folder.tensor("model.norm.weight").dtype(), DType::kBF16);
  }
}

// The whole model, through the weight table; what is saved afterwards is plain.
TEST(Export, FoldersAreReadAsWhatTrainingReads) {
  const QuantizerKind int4_then_fp8{"int4", quantizers::Sharing::kBlock, 16, false, "fp8"};
  for (const QuantizeOptions& options :
       {QuantizeOptions{"FP8_DEFAULT"}, QuantizeOptions{"NVFP4_DEFAULT"},
        QuantizeOptions{"", {{"layers.*", int4_then_fp8, QuantizerKind{"fp8"}}}}}) {
    SCOPED_TRACE(options.preset);
    const auto model = calibrated(options, "qwen3", DType::kF32);
    const TemporaryDirectory out;
    export_model(*model, out / "m", "");
    const auto read = load_model(out / "m", {});
    for (const WeightSpec& spec : read->decoder.parameters().table().specs()) {
      const Tensor value = read->decoder.parameters().value(spec.name);
      EXPECT_EQ(values_of(value), spec.quantize && spec.lora == LoraRole::kLinear
                                      ? faked(*model, spec.name, 0, spec.shape[0])
                                      : values_of(model->decoder.parameters().value(spec.name)))
          << spec.name;
    }
    save_model(*read, out / "plain", "");
    EXPECT_EQ(checkpoints::read_model_config(out / "plain").find("quantization_config"), nullptr);
    const auto plain = load_model(out / "plain", {});
    for (const WeightSpec& spec : read->decoder.parameters().table().specs())
      EXPECT_EQ(values_of(plain->decoder.parameters().value(spec.name)),
                values_of(read->decoder.parameters().value(spec.name)))
          << spec.name;
  }
}

TEST(Export, AdaptersMergeIntoExportedFoldersAsIntoTheNumbersThatTheseMean) {
  const auto model = calibrated({"NVFP4_DEFAULT"}, "qwen3", DType::kF32);
  const TemporaryDirectory out;
  export_model(*model, out / "codes", "");
  const auto read = load_model(out / "codes", {});
  save_model(*read, out / "numbers", "");
  const auto adapter = new_adapter(*read, {.rank = 2}, 1, "");
  for (size_t i = 0; i < adapter->parameters().size(); ++i)
    for (float& value : adapter->parameters()[i].value.values<float>()) value += 0.1f;
  save_adapter(*adapter, out / "adapter", "");
  for (const char* base : {"codes", "numbers"})
    merge_adapter(out / "adapter", out / base, out / (std::string(base) + "_merged"), 1 << 30);
  const auto merged = load_model(out / "codes_merged", {}), expected = load_model(out / "numbers_merged", {});
  EXPECT_EQ(checkpoints::read_model_config(out / "codes_merged").find("quantization_config"), nullptr);
  for (const WeightSpec& spec : merged->decoder.parameters().table().specs())
    EXPECT_EQ(values_of(merged->decoder.parameters().value(spec.name)),
              values_of(expected->decoder.parameters().value(spec.name)))
        << spec.name;
  EXPECT_NE(values_of(merged->decoder.parameters().value("layers.0.attention.qkv.weight")),
            values_of(read->decoder.parameters().value("layers.0.attention.qkv.weight")));
}

TEST(Export, EachExpertHasScalesOfItsOwn) {
  const QuantizerKind nvfp4{"nvfp4"};
  const auto model = calibrated({"", {{"layers.*.mlp.experts.*", nvfp4, nvfp4}}}, "qwen3_moe");
  const TemporaryDirectory out;
  export_model(*model, out / "m", "");
  const auto folder = checkpoints::ModelFolder::open(out / "m");
  std::set<double> scales;
  for (int e = 0; e < 6; ++e) {
    const std::string expert = fmt::format("model.layers.1.mlp.experts.{}.", e);
    EXPECT_EQ(read_back(folder, expert + "gate_proj"),
              faked(*model, "layers.1.mlp.experts.gate_up.weight", e * 32, 16));
    EXPECT_EQ(read_back(folder, expert + "up_proj"),
              faked(*model, "layers.1.mlp.experts.gate_up.weight", e * 32 + 16, 16));
    EXPECT_EQ(read_back(folder, expert + "down_proj"),
              faked(*model, "layers.1.mlp.experts.down.weight", e * 32, 32));
    const Doubles gate = values_of(folder.tensor(expert + "gate_proj.weight_scale_2"));
    EXPECT_EQ(values_of(folder.tensor(expert + "up_proj.weight_scale_2")), gate);
    scales.insert(gate[0]);
    for (const auto& [module, part] :
         {std::pair{"gate_up", "gate_proj"}, {"gate_up", "up_proj"}, {"down", "down_proj"}}) {
      const quantizers::Quantizer* const input =
          model->decoder.quantizers().find(fmt::format("layers.1.mlp.experts.{}.input_quantizer", module));
      EXPECT_EQ(values_of(folder.tensor(expert + part + ".input_scale")),
                Doubles{quant::global_scale(input->amax.data<float>()[e])})
          << part;
    }
  }
  EXPECT_EQ(scales.size(), 6u);
}

// The tensors that vLLM, SGLang and TensorRT-LLM fill the parameters of a module from, by their ends; each
// module has them all, and no other.
TEST(Export, EveryModuleHasTheTensorsThatReadersExpect) {
  using Ends = std::map<std::string, DType>;
  const auto f8 = DType::kF8E4M3, f32 = DType::kF32, u8 = DType::kU8;
  const Ends fp8{{"weight", f8}, {"weight_scale", f32}, {"input_scale", f32}},
      rows{{"weight", f8}, {"weight_scale", f32}},
      nvfp4{{"weight", u8}, {"weight_scale", f8}, {"weight_scale_2", f32}, {"input_scale", f32}},
      alone{{"weight", u8}, {"weight_scale", f8}, {"weight_scale_2", f32}};
  for (const auto& [preset, expected] : std::map<std::string, Ends>{{"FP8_DEFAULT", fp8},
                                                                    {"FP8_PER_CHANNEL_PER_TOKEN", rows},
                                                                    {"NVFP4_DEFAULT", nvfp4},
                                                                    {"W4A16_NVFP4", alone}}) {
    SCOPED_TRACE(preset);
    const auto model =
        calibrated({preset, {{"layers.*.attention.qkv", {}, {}, {}, QuantizerKind{"fp8"}}}}, "qwen3_moe");
    const TemporaryDirectory out;
    export_model(*model, out / "m", "");
    const auto folder = checkpoints::ModelFolder::open(out / "m");
    std::map<std::string, Ends> found;
    for (const std::string& name : folder.names())
      if (name.find("_proj.") != std::string::npos)
        found[name.substr(0, name.rfind('.'))].emplace(name.substr(name.rfind('.') + 1),
                                                       folder.tensor(name).dtype());
    std::map<std::string, Ends> wanted;
    for (const int layer : {0, 1}) {
      const std::string begin = fmt::format("model.layers.{}.", layer);
      for (const char* module : {"q_proj", "k_proj", "v_proj", "o_proj"})
        wanted[begin + "self_attn." + module] = expected;
      wanted[begin + "self_attn.k_proj"].emplace("k_scale", f32);
      wanted[begin + "self_attn.v_proj"].emplace("v_scale", f32);
      for (int e = 0; e < 6; ++e)
        for (const char* module : {"gate_proj", "up_proj", "down_proj"})
          wanted[fmt::format("{}mlp.experts.{}.{}", begin, e, module)] = expected;
    }
    EXPECT_EQ(found, wanted);
  }
}

// As nvidia-modelopt writes them; what else passes has no scale that readers know.
TEST(Export, KeysAndValuesHaveScales) {
  const QuantizerKind fp8{"fp8"};
  const auto model = calibrated({"FP8_DEFAULT", {{"layers.*", {}, {}, {}, fp8}}});
  const TemporaryDirectory out;
  export_model(*model, out / "m", "");
  const auto folder = checkpoints::ModelFolder::open(out / "m");
  for (const auto& [kept, scale] :
       {std::pair{"k_bmm_quantizer", "k_proj.k_scale"}, {"v_bmm_quantizer", "v_proj.v_scale"}}) {
    const Tensor found = folder.tensor(std::string("model.layers.1.self_attn.") + scale);
    EXPECT_EQ(found.ndim(), 0);
    const auto* const quantizer = model->decoder.quantizers().find(std::string("layers.1.attention.") + kept);
    EXPECT_EQ(values_of(found), Doubles{*quantizer->amax.data<float>() / 448});
  }
  EXPECT_EQ(Json::parse_file(out / "m/hf_quant_config.json")
                .at("quantization")
                .at("kv_cache_quant_algo")
                .as_string(),
            "FP8");
  EXPECT_EQ(Json::parse_file(out / "m/config.json").at("quantization_config").at("kv_cache_scheme").dump(),
            R"({"dynamic": false, "num_bits": 8, "type": "float"})");
  load_model(out / "m", {});
  const auto refusal = [&](const QuantizeOptions& options) {
    return error_of([&] { export_model(*calibrated(options), out / "none", ""); });
  };
  EXPECT_EQ(refusal({"FP8_DEFAULT", {{"layers.*.mlp.down", {}, {}, fp8}}}),
            "[export] layers.0.mlp.down.output_quantizer rounds what a module gives: readers know no scale "
            "of that, and would compute something else; train without outputs in quantize.rules");
  EXPECT_EQ(refusal({"FP8_DEFAULT", {{"layers.*", {}, {}, {}, QuantizerKind{"int8"}}}}),
            "[export] layers.0.attention.k_bmm_quantizer keeps keys and values in int8: readers know fp8");
}

TEST(Export, FilesSayWhatIsQuantizedAndHow) {
  const TemporaryDirectory out;
  export_model(*calibrated({"FP8_DEFAULT", {{"layers.0.*", QuantizerKind{}, QuantizerKind{}}}}), out / "fp8",
               "");
  const Json how = Json::parse_file(out / "fp8/hf_quant_config.json").at("quantization");
  EXPECT_EQ(how.at("quant_algo").as_string(), "FP8");
  const std::string excluded = how.at("exclude_modules").dump();
  for (const char* module : {"lm_head", "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"})
    EXPECT_NE(excluded.find(fmt::format("\"{}\"", module)), std::string::npos) << excluded;
  EXPECT_EQ(excluded.find("layers.1."), std::string::npos) << excluded;
  const Json config = Json::parse_file(out / "fp8/config.json").at("quantization_config");
  EXPECT_EQ(config.at("quant_method").as_string(), "modelopt");
  EXPECT_EQ(config.at("quant_algo").as_string(), "FP8");
  EXPECT_EQ(config.at("ignore").dump(), excluded);
  EXPECT_EQ(config.at("config_groups").at("group_0").dump(),
            R"({"input_activations": {"dynamic": false, "num_bits": 8, "type": "float"}, )"
            R"("weights": {"dynamic": false, "num_bits": 8, "type": "float"}, "targets": ["Linear"]})");
  // The folder itself is read as one that is quantized already.
  BuildOptions again;
  again.quantize = {"FP8_DEFAULT"};
  expect_has(error_of([&] { load_model(out / "fp8", again); }),
             fmt::format("[quantize] the model {} is quantized already (modelopt FP8); use the model that it "
                         "was made from, or leave quantize out",
                         out / "fp8"));

  const QuantizerKind fp8{"fp8"}, nvfp4{"nvfp4"};
  export_model(*calibrated({"NVFP4", {{"layers.0.mlp.*", fp8, fp8}}}), out / "mixed", "");
  const Json mixed = Json::parse_file(out / "mixed/hf_quant_config.json").at("quantization");
  EXPECT_EQ(mixed.at("quant_algo").as_string(), "MIXED_PRECISION");
  const Json& layers = mixed.at("quantized_layers");
  EXPECT_EQ(layers.at("model.layers.0.mlp.up_proj").dump(), R"({"quant_algo": "FP8"})");
  EXPECT_EQ(layers.at("model.layers.0.self_attn.q_proj").dump(),
            R"({"quant_algo": "NVFP4", "group_size": 16})");

  const QuantizerKind twice{"int4", quantizers::Sharing::kBlock, 16, false, "fp8"};
  const auto model = calibrated({"FP8", {{"layers.0.mlp.*", twice, fp8}}}, "llama", DType::kF32);
  export_model(*model, out / "twice", "");
  EXPECT_EQ(
      Json::parse_file(out / "twice/hf_quant_config.json")
          .at("quantization")
          .at("quantized_layers")
          .at("model.layers.0.mlp.up_proj")
          .dump(),
      R"({"quant_algo": "W4A8_AWQ", "group_size": 16, "has_zero_point": false, "pre_quant_scale": true})");
  EXPECT_NE(Json::parse_file(out / "twice/config.json")
                .at("quantization_config")
                .at("config_groups")
                .dump()
                .find(R"("weights": {"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16})"),
            std::string::npos);
  const auto read = load_model(out / "twice", {});
  for (const char* name : {"layers.0.mlp.down.weight", "layers.1.mlp.down.weight"}) {
    const Tensor value = read->decoder.parameters().value(name);
    EXPECT_EQ(values_of(value), faked(*model, name, 0, value.dim(0))) << name;
  }
}

TEST(Export, Refusals) {
  const TemporaryDirectory out;
  const auto refusal = [&](const std::unique_ptr<Model>& model) {
    return error_of([&] { export_model(*model, out / "m", ""); });
  };
  EXPECT_EQ(refusal(tiny_model({})), "[export] the model has no quantizers: nothing is to be encoded");
  EXPECT_EQ(refusal(tiny_model({.quantize = {"FP8"}})),
            "[export] the quantizers have no amax: calibrate the model first");
  const char* const known =
      "readers know fp8 with calibrated fp8; fp8 per channel with fp8 per token; fp8 in tiles of 128 × 128 "
      "alone; int8 per channel with calibrated int8; int8 per channel alone; int4 in blocks alone; int4 "
      "in blocks, then fp8 with calibrated fp8; nvfp4 with calibrated nvfp4; nvfp4 alone; mxfp8 with mxfp8; "
      "mxfp4 with mxfp4; mxfp4 alone; mxfp4 with fp8";
  EXPECT_EQ(
      refusal(
          calibrated({"", {{"layers.0.attention.output", QuantizerKind{"mxfp6"}, QuantizerKind{"mxfp6"}}}})),
      fmt::format("[export] layers.0.attention.output.weight_quantizer is mxfp6 per blocks of 32 with inputs "
                  "in mxfp6 per blocks of 32: {}",
                  known));
  // Tiles and pairs of rows that modules of one weight would share.
  expect_has(
      refusal(calibrated(
          {"", {{"layers.0.attention.qkv", QuantizerKind{"fp8", quantizers::Sharing::kTile, 16}, {}}}})),
      "[export] layers.0.attention.qkv.weight_quantizer has tiles of 16 × 16: readers know those of "
      "128 × 128");
  EXPECT_EQ(
      refusal(calibrated({"", {{"layers.0.mlp.down", QuantizerKind{"fp8"}, {}}}})),
      fmt::format("[export] layers.0.mlp.down.weight_quantizer is fp8 per tensor with inputs that are not "
                  "quantized: {}",
                  known));
  EXPECT_EQ(
      refusal(calibrated({"", {{"layers.0.mlp.down", {}, QuantizerKind{"fp8"}}}})),
      "[export] layers.0.mlp.down.input_quantizer: the module's weight has no quantizer, and readers do not "
      "support that");
  EXPECT_FALSE(exists(out / "m"));
}

}  // namespace
}  // namespace temper::models
