#include "models/export.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoints/hf_folder.h"
#include "quant/number_format.h"
#include "version.h"

namespace temper::models {
namespace {

using checkpoints::TensorInfo;
using layers::PlannedQuantizer;
using layers::Quantizer;

// What readers call the formats of a module's weight and input.
enum class Algorithm { kFp8, kNvfp4, kNvfp4Weights };

const char* name_of(Algorithm algorithm) {
  return algorithm == Algorithm::kFp8 ? "FP8" : algorithm == Algorithm::kNvfp4 ? "NVFP4" : "W4A16_NVFP4";
}

struct Module {
  const Quantizer* weight = nullptr;
  const Quantizer* input = nullptr;  // null: read as it is
  Algorithm algorithm = Algorithm::kFp8;
};

bool is(const Quantizer* each, std::string_view format) {
  return each != nullptr && each->planned.kind.format == format &&
         each->planned.kind.sharing == layers::Sharing::kTensor && each->planned.keeps_amax();
}

Algorithm algorithm_of(const Module& module) {
  if (is(module.weight, "fp8") && is(module.input, "fp8")) return Algorithm::kFp8;
  if (is(module.weight, "nvfp4") && is(module.input, "nvfp4")) return Algorithm::kNvfp4;
  if (is(module.weight, "nvfp4") && module.input == nullptr) return Algorithm::kNvfp4Weights;
  const PlannedQuantizer& weight = module.weight->planned;
  fail(
      "[export] {} is {} per {} with inputs {}: readers know fp8 per tensor with calibrated inputs in fp8, "
      "and "
      "nvfp4 with calibrated inputs in nvfp4 or with inputs that are not quantized",
      weight.name, weight.kind.format, weight.groups(),
      module.input == nullptr ? "that are not quantized"
                              : fmt::format("in {}{}", module.input->planned.kind.format,
                                            module.input->planned.kind.dynamic ? ", dynamic" : ""));
}

std::string module_name(const WeightSource& source) {
  return source.name.substr(0, source.name.size() - std::string_view(".weight").size());
}

// A tensor without dimensions.
Tensor scalar(float value) { return Tensor::from<float>(std::vector<float>{value}, {1}).reshape({}); }

// Bytes as codes of E4M3.
Tensor as_e4m3(const Tensor& bytes) {
  const auto owner = std::make_shared<Tensor>(bytes);
  return Tensor::borrow(owner->data<uint8_t>(), bytes.shape(), DType::kF8E4M3, owner);
}

// The number that codes are multiplied by, and that inputs are divided by.
float scale_of(const quant::Format& format, float amax) {
  return format.has_blocks() ? quant::global_scale(amax) : quant::factors_of(format, amax).back;
}

class Encoder : public checkpoints::EncodedParameters {
 public:
  explicit Encoder(const layers::Decoder& model) {
    for (const Quantizer& each : model.quantizers().all()) {
      Module& module = modules_[each.planned.weight];
      (each.planned.of_input ? module.input : module.weight) = &each;
    }
    for (auto& [name, module] : modules_) {
      if (module.weight == nullptr)
        fail("[export] {} has no quantizer of its weight beside it: readers do not know that",
             module.input->planned.name);
      module.algorithm = algorithm_of(module);
    }
  }

  const std::map<std::string, Module>& modules() const { return modules_; }

  std::vector<TensorInfo> list(const WeightSpec& spec) const override {
    const auto found = modules_.find(spec.name);
    if (found == modules_.end()) return {};
    if (spec.experts_in_files > 0)
      fail(
          "[export] {} is quantized: readers know no such format of experts whose files have transposes; "
          "leave "
          "the experts out of the quantization",
          spec.name);
    const Module& module = found->second;
    const bool fp8 = module.algorithm == Algorithm::kFp8;
    const int64_t columns = spec.shape[1];
    std::vector<TensorInfo> infos;
    for (const WeightSource& source : spec.sources) {
      const std::string name = module_name(source);
      infos.push_back(
          {name + ".weight", {source.rows, fp8 ? columns : columns / 2}, fp8 ? DType::kF8E4M3 : DType::kU8});
      if (!fp8) infos.push_back({name + ".weight_scale", {source.rows, columns / 16}, DType::kF8E4M3});
      infos.push_back({name + (fp8 ? ".weight_scale" : ".weight_scale_2"), {}, DType::kF32});
      if (module.input != nullptr) infos.push_back({name + ".input_scale", {}, DType::kF32});
    }
    return infos;
  }

  std::vector<Tensor> encode(const WeightSpec& spec, const Tensor& value) const override {
    const Module& module = modules_.at(spec.name);
    const PlannedQuantizer& planned = module.weight->planned;
    const quant::Encoded encoded = quant::encode(
        spec.name, planned.format, value.contiguous().reshape(planned.values), module.weight->amax);
    const int64_t rows = spec.shape[0];
    const Tensor codes = encoded.codes.reshape({rows, encoded.codes.numel() / rows});
    const bool fp8 = module.algorithm == Algorithm::kFp8;
    const Tensor scales =
        fp8 ? Tensor() : as_e4m3(encoded.scales.reshape({rows, encoded.scales.numel() / rows}));
    std::vector<Tensor> parts;
    int64_t row = 0;
    for (const WeightSource& source : spec.sources) {
      const Tensor own = codes.narrow(0, row, source.rows);
      parts.push_back(fp8 ? as_e4m3(own) : own);
      if (!fp8) parts.push_back(scales.narrow(0, row, source.rows));
      parts.push_back(scalar(scale_of(planned.format, amax_at(*module.weight, row, rows))));
      if (module.input != nullptr)
        parts.push_back(scalar(scale_of(module.input->planned.format, *module.input->amax.data<float>())));
      row += source.rows;
    }
    return parts;
  }

 private:
  // Of the expert that a row belongs to.
  static float amax_at(const Quantizer& weight, int64_t row, int64_t rows) {
    return weight.amax.data<float>()[row / (rows / weight.planned.count)];
  }

  std::map<std::string, Module> modules_;  // by parameter
};

// By the names of files: modules with their algorithm, and the linears that stay as they are.
struct Listed {
  std::map<std::string, Algorithm> quantized;
  std::set<std::string> excluded{"lm_head"};
  std::set<Algorithm> algorithms;
};

Listed listed(const Encoder& encoder, const WeightTable& table) {
  Listed all;
  for (const WeightSpec& spec : table.specs()) {
    const auto found = encoder.modules().find(spec.name);
    const bool matrix = spec.shape.ndim() == 2 && spec.lora != LoraRole::kEmbedding;
    for (const WeightSource& source : spec.sources) {
      if (found != encoder.modules().end()) {
        all.quantized[module_name(source)] = found->second.algorithm;
        all.algorithms.insert(found->second.algorithm);
      } else if (matrix && source.name.ends_with(".weight")) {
        all.excluded.insert(module_name(source));
      }
    }
  }
  return all;
}

Json::Array names_in(const std::set<std::string>& names) { return {names.begin(), names.end()}; }

Json numbers(int64_t bits) {
  Json::Object object{{"dynamic", false}, {"num_bits", bits}, {"type", "float"}};
  if (bits == 4) object.emplace_back("group_size", 16);
  return object;
}

Json group_of(Algorithm algorithm, Json::Array targets) {
  const int64_t bits = algorithm == Algorithm::kFp8 ? 8 : 4;
  Json::Object group;
  if (algorithm != Algorithm::kNvfp4Weights) group.emplace_back("input_activations", numbers(bits));
  group.emplace_back("weights", numbers(bits));
  group.emplace_back("targets", std::move(targets));
  return group;
}

Json producer() { return Json::Object{{"name", "temper"}, {"version", TEMPER_VERSION}}; }

// Of modules of several algorithms each one is listed.
Json quantized_layers(const Listed& all) {
  Json::Object layers;
  for (const auto& [module, algorithm] : all.quantized) {
    Json::Object one{{"quant_algo", name_of(algorithm)}};
    if (algorithm != Algorithm::kFp8) one.emplace_back("group_size", 16);
    layers.emplace_back(module, std::move(one));
  }
  return layers;
}

Json hf_quant_config(const Listed& all) {
  const bool mixed = all.algorithms.size() > 1;
  Json::Object how{{"quant_algo", mixed ? "MIXED_PRECISION" : name_of(*all.algorithms.begin())},
                   {"kv_cache_quant_algo", Json()}};
  if (!mixed && *all.algorithms.begin() != Algorithm::kFp8) how.emplace_back("group_size", 16);
  if (mixed) how.emplace_back("quantized_layers", quantized_layers(all));
  how.emplace_back("exclude_modules", names_in(all.excluded));
  return Json::Object{{"producer", producer()}, {"quantization", std::move(how)}};
}

Json quantization_config(const Listed& all) {
  const bool mixed = all.algorithms.size() > 1;
  Json::Object groups;
  for (const Algorithm algorithm : all.algorithms) {
    Json::Array targets{"Linear"};
    if (mixed) {
      targets.clear();
      for (const auto& [module, own] : all.quantized)
        if (own == algorithm) targets.emplace_back(module);
    }
    groups.emplace_back(fmt::format("group_{}", groups.size()), group_of(algorithm, std::move(targets)));
  }
  Json::Object config{{"config_groups", std::move(groups)}};
  if (mixed) config.emplace_back("quantized_layers", quantized_layers(all));
  config.emplace_back("ignore", names_in(all.excluded));
  config.emplace_back("quant_algo", mixed ? "MIXED_PRECISION" : name_of(*all.algorithms.begin()));
  config.emplace_back("producer", producer());
  config.emplace_back("quant_method", "modelopt");
  return config;
}

}  // namespace

void export_model(const Model& model, const std::string& folder, const std::string& files_from) {
  if (model.decoder.quantizers().empty())
    fail("[export] the model has no quantizers: nothing is to be encoded");
  if (!model.decoder.quantizers().ready())
    fail("[export] the quantizers have no amax: calibrate the model first");
  const auto& parameters = model.decoder.parameters();
  const Encoder encoder(model.decoder);
  const Listed all = listed(encoder, parameters.table());
  Json config = model.config;
  config.set("quantization_config", quantization_config(all));
  checkpoints::SaveOptions options;
  options.dtype = parameters.dtype();
  options.original = files_from;
  options.encoded = &encoder;
  options.json_files = {{"hf_quant_config.json", hf_quant_config(all)}};
  std::optional<checkpoints::ModelFolder> read;
  if (!model.folder.empty() && parameters.table().keeps_some())
    options.kept = &read.emplace(checkpoints::ModelFolder::open(model.folder));
  checkpoints::save_model(
      folder, parameters.table(), [&](const WeightSpec& spec) { return parameters.value(spec.name); }, config,
      options);
}

}  // namespace temper::models
