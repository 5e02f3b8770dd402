// Exported folders compared with those of nvidia-modelopt for the same model
// (tools/oracles/make_export_cases.py).
#include <algorithm>
#include <cstring>

#include "base/files.h"
#include "base/hash.h"
#include "checkpoints/hf_folder.h"
#include "models/export.h"
#include "primitives/fake_quantized.h"
#include "quant/groups.h"
#include "quant/number_format.h"
#include "tests/support/decoded.h"
#include "tests/support/made_up_amax.h"
#include "tests/support/tiny_model.h"

#include <gtest/gtest.h>

namespace temper::models {
namespace {

using quantizers::QuantizeOptions;
using quantizers::Quantizer;
using quantizers::QuantizerKind;

// As the script makes them up.
Tensor made_up(const std::string& name, int64_t rows, int64_t columns) {
  uint32_t seed = 2166136261u;
  for (const char byte : name) seed = (seed ^ static_cast<uint8_t>(byte)) * 16777619u;
  const Tensor values = Tensor::empty({rows, columns}, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < values.numel(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x = (x ^ x >> 15) * 2246822519u;
    const double row = static_cast<double>(1 + 2 * (i / columns % 5));
    values.data<float>()[i] = static_cast<float>((static_cast<double>(x >> 16 | 1) - 32768) * row * 0x1p-20);
  }
  return values;
}

float made_up_amax(const Quantizer& quantizer) {
  for (const auto& [module, amax] :
       {std::pair{"attention.qkv", 2.75f}, {"attention.output", 1.3f}, {".gate_up", 5.1f}, {".down", 0.7f}})
    if (quantizer.planned.name.find(module) != std::string::npos) return amax;
  ADD_FAILURE() << quantizer.planned.name;
  return 0;
}

// As the script scales columns: odd sixteenths.
std::vector<float> made_up_scales(const Quantizer& quantizer, int64_t columns) {
  int64_t group = 0;
  for (const auto& [module, number] :
       {std::pair{"attention.qkv", 1}, {"attention.output", 2}, {"mlp.gate_up", 3}, {"mlp.down", 4}})
    if (quantizer.planned.name.find(module) != std::string::npos) group = number;
  std::vector<float> scales;
  for (int64_t c = 0; c < columns; ++c)
    scales.push_back(static_cast<float>((c * 40503 + group * 977) % 15 * 2 + 1) / 16);
  return scales;
}

// What is rounded of a weight.
Tensor scaled_values(const Model& model, const Quantizer& each) {
  const Tensor values = model.decoder.parameters().at(each.planned.weight).value.reshape(each.planned.values);
  return each.columns.exist() ? primitives::scaled_columns(values, each.columns.inverse) : values;
}

std::unique_ptr<Model> model_of(const char* type, const QuantizeOptions& options) {
  auto model = tiny_model({.type = type, .quantize = options, .sizes = few_to_export()});
  auto& parameters = model->decoder.parameters();
  for (const WeightSpec& spec : parameters.table().specs()) {
    int64_t row = 0;
    for (const WeightSource& source : spec.sources) {
      if (spec.shape.ndim() == 2)
        parameters.set_rows(spec.name, row, made_up(source.name, source.rows, spec.shape[1]));
      else
        parameters.set_rows(spec.name, row, made_up(source.name, 1, source.rows).reshape({source.rows}));
      row += source.rows;
    }
  }
  for (Quantizer& each : model->decoder.quantizers().all()) {
    if (each.columns.exist()) {
      const int64_t columns = each.columns.whole.dim(-1);
      each.columns.whole.copy_from(
          Tensor::from<float>(made_up_scales(each, columns), each.columns.whole.shape()));
      each.columns.take_own();
    }
    if (!each.planned.keeps_amax()) continue;
    if (each.planned.of_input)
      std::ranges::fill(each.amax.values<float>(),
                        made_up_amax(each));  // the other exporter has one of all experts
    else
      each.amax.copy_from(quant::amax_of(scaled_values(*model, each), each.planned.amax));
  }
  model->decoder.quantizers().set_ready();
  return model;
}

std::string_view bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes())};
}

// `whole`: the golden has them, not their hash.
std::string written(const Tensor& tensor, bool whole) {
  const std::string_view bytes = bytes_of(tensor);
  std::string hexadecimal;
  if (whole) {
    for (const char byte : bytes) hexadecimal += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    return hexadecimal;
  }
  Hasher hasher;
  hasher.update(bytes.data(), bytes.size());
  return hasher.digest();
}

// Scales of FP8 are the reciprocals that training multiplies by, where the other exporter divides amax by
// 448: at most one unit of the last place lies between them.
void expect_near(const Tensor& scales, const std::string& golden, const std::string& name) {
  ASSERT_EQ(golden.size(), static_cast<size_t>(scales.bytes()) * 2) << name;
  const std::string own = written(scales, true);
  const auto number = [](const std::string& text, size_t at) {
    uint32_t bits = 0;
    for (size_t byte = 4; byte-- > 0;)
      bits = bits << 8 | static_cast<uint32_t>(std::stoul(text.substr(at + 2 * byte, 2), nullptr, 16));
    return static_cast<int64_t>(bits);
  };
  for (size_t at = 0; at < golden.size(); at += 8)
    EXPECT_LE(std::abs(number(own, at) - number(golden, at)), 1) << name << " " << at / 8;
}

// "quantized_layers" in any order, and "exclude_modules" only where the other writes it.
void expect_same_description(const Json& own, const Json& golden) {
  for (const auto& [key, value] : golden.as_object()) {
    const Json* found = own.find(key);
    ASSERT_NE(found, nullptr) << key;
    if (key != "quantized_layers") {
      EXPECT_EQ(found->dump(), value.dump()) << key;
      continue;
    }
    for (const auto& [module, how] : value.as_object())
      EXPECT_EQ(found->at(module).dump(), how.dump()) << module;
    EXPECT_EQ(found->as_object().size(), value.as_object().size());
  }
}

// Whether it is a scale of FP8 weights, or of inputs next to FP8 weights.
bool is_fp8_scale(const checkpoints::ModelFolder& folder, const std::string& name, bool inputs_in_fp8) {
  if (folder.find(name)->dtype != "F32") return false;
  if (inputs_in_fp8 && name.ends_with(".input_scale")) return true;
  const std::string weight = name.substr(0, name.rfind('.')) + ".weight";
  return folder.find(weight) != nullptr && folder.find(weight)->dtype == "F8_E4M3";
}

QuantizeOptions options_of(const std::string& name) {
  if (name != "mixed") return {name, {}, true, quantizers::quantizer_preset(name).calibration};
  return {"NVFP4_DEFAULT", {{"layers.*.mlp.down", QuantizerKind{"fp8"}, QuantizerKind{"fp8"}}}};
}

// Calls f(model, the folder that it was exported to, what is expected of it) for each case.
template <class F>
void for_each_export(F&& f) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/exported.json");
  for (const auto& [name, golden] : cases.as_object()) {
    SCOPED_TRACE(name);
    const size_t space = name.find(' ');
    const auto model = model_of(name.substr(0, space).c_str(), options_of(name.substr(space + 1)));
    const TemporaryDirectory out;
    export_model(*model, out / "m", "");
    f(*model, out / "m", golden);
  }
}

TEST(ExportGoldens, TensorsAndConfigurationsAreThoseOfModelopt) {
  int64_t tensors = 0;
  for_each_export([&](const Model&, const std::string& exported, const Json& golden) {
    const auto folder = checkpoints::ModelFolder::open(exported);
    const auto& expected = golden.at("tensors").as_object();
    const std::string& algorithm = golden.at("quantization_config").at("quant_algo").as_string();
    size_t own = 0;
    for (const std::string& each : folder.names())
      own += (each.find("norm") == std::string::npos ||
              golden.at("tensors").find("model.norm.weight") != nullptr) &&
             each != "lm_head.weight" && each != "model.embed_tokens.weight";
    EXPECT_EQ(own, expected.size());
    for (const auto& [tensor, what] : expected) {
      ASSERT_NE(folder.find(tensor), nullptr) << tensor;
      const Tensor held = folder.tensor(tensor);
      const auto& fields = what.as_array();
      EXPECT_EQ(to_string(held.dtype()), fields[0].as_string()) << tensor;
      std::string shape = "[";
      for (int d = 0; d < held.shape().ndim(); ++d)
        shape += fmt::format("{}{}", d > 0 ? ", " : "", held.dim(d));
      // Of one tile the other exporter leaves the dimensions out in some modules, and not in others.
      if (shape != "[1, 1, 1, 1") {
        EXPECT_EQ(shape + "]", fields[1].dump()) << tensor;
      }
      const std::string& bytes = fields[2].as_string();
      if (is_fp8_scale(folder, tensor, algorithm == "W4A8_AWQ")) {
        expect_near(held, bytes, tensor);
      } else {
        EXPECT_EQ(written(held, bytes.size() == static_cast<size_t>(held.bytes()) * 2), bytes) << tensor;
      }
      ++tensors;
    }
    const Json file = Json::parse_file(exported + "/hf_quant_config.json");
    expect_same_description(file.at("quantization"), golden.at("hf_quant_config"));
    const Json config = Json::parse_file(exported + "/config.json").at("quantization_config");
    EXPECT_EQ(config.at("quant_algo"), golden.at("quantization_config").at("quant_algo"));
    EXPECT_EQ(config.find("config_groups") == nullptr,
              golden.at("quantization_config").find("config_groups") == nullptr);
    if (golden.at("hf_quant_config").find("quantized_layers") == nullptr &&
        config.find("config_groups") != nullptr) {
      EXPECT_EQ(config.at("config_groups").dump(),
                golden.at("quantization_config").at("config_groups").dump());
    }
  });
  EXPECT_GT(tensors, 500);
}

// What load_model() reads is what training rounds to; of integers one rounding apart, as models/export.h
// says. Factors of columns come back with the weight, or are in the norm before it.
TEST(ExportGoldens, FoldersAreReadAsWhatTrainingRoundsTo) {
  int64_t matrices = 0, scaled = 0;
  for_each_export([&](const Model& model, const std::string& exported, const Json&) {
    const auto read = load_model(exported, {});
    const auto folder = checkpoints::ModelFolder::open(exported);
    for (const Quantizer& each : model.decoder.quantizers().all()) {
      if (each.planned.of_input) continue;
      const auto coded = [&](const Tensor& values, const quant::Format& format, const Tensor& amax) {
        return quant::decode(format, quant::encode(each.planned.name, format, values, amax), DType::kF32);
      };
      Tensor rounded = coded(scaled_values(model, each), each.planned.format, each.amax);
      if (each.planned.rounds_again()) rounded = coded(rounded, each.planned.second_format(), each.second);
      const std::string& source =
          model.decoder.parameters().table().find(each.planned.weight)->sources[0].name;
      const std::string scales = source.substr(0, source.rfind('.')) + ".pre_quant_scale";
      if (folder.find(scales) != nullptr)
        rounded = primitives::scaled_columns(rounded, each.columns.pre_quant);
      scaled += each.columns.exist() ? 1 : 0;
      const Tensor found = read->decoder.parameters().value(each.planned.weight);
      const bool integers = each.planned.format.scaling == quant::Scaling::kIntegers;
      int64_t others = 0;
      for (int64_t i = 0; i < found.numel(); ++i) {
        const float a = found.data<float>()[i], b = rounded.data<float>()[i];
        others += std::abs(a - b) > (integers ? 0x1p-22f * std::abs(b) : 0.f) ? 1 : 0;
      }
      EXPECT_EQ(others, 0) << each.planned.weight;
      ++matrices;
    }
  });
  EXPECT_GE(matrices, 85);
  EXPECT_EQ(scaled, 16);
}

// A norm takes over the factors that its reader divides by: what the reader computes stays.
TEST(ExportGoldens, NormsTakeOverFactorsOfTheModulesThatReadThem) {
  int64_t folded = 0;
  for_each_export([&](const Model& model, const std::string& exported, const Json&) {
    const auto read = load_model(exported, {});
    for (const Quantizer& each : model.decoder.quantizers().all()) {
      if (!each.columns.exist() || each.planned.format.element.bits == 8) continue;
      const bool attention = each.planned.name.find("attention.qkv") != std::string::npos;
      if (!attention && each.planned.name.find("gate_up") == std::string::npos) continue;
      const std::string norm =
          attention ? "layers.0.input_norm.weight" : "layers.0.post_attention_norm.weight";
      const Tensor before = model.decoder.parameters().value(norm),
                   after = read->decoder.parameters().value(norm);
      for (int64_t c = 0; c < before.numel(); ++c)
        EXPECT_EQ(after.data<float>()[c], before.data<float>()[c] * each.columns.whole.data<float>()[c]) << c;
      ++folded;
    }
  });
  EXPECT_EQ(folded, 6);
}

}  // namespace
}  // namespace temper::models
