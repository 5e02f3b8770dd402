#include "models/export_compressed.h"

#include <tuple>

#include "base/error.h"
#include "foreign/compressed_parts.h"
#include "version.h"

namespace temper::models {
namespace {

using checkpoints::TensorInfo;
using foreign::ModeloptAlgorithm;
using foreign::ScaleGroups;

// Modules that are described alike.
struct Less {
  bool operator()(const CompressedModule& a, const CompressedModule& b) const {
    if (a.form < b.form || b.form < a.form) return a.form < b.form;
    return std::tuple(a.quantizes_inputs, a.by_token, a.input_zeros) <
           std::tuple(b.quantizes_inputs, b.by_token, b.input_zeros);
  }
};

Json::Object numbers_of(const ModeloptAlgorithm& how, bool zeros) {
  return {{"num_bits", int64_t{how.element.bits}},
          {"type", how.element.integer ? "int" : "float"},
          {"symmetric", !zeros}};
}

// Blocks whose scales are narrow, of weights as of inputs.
void add_blocks(Json::Object& numbers, const ModeloptAlgorithm& how) {
  numbers.emplace_back("strategy", how.second ? "tensor_group" : "group");
  numbers.emplace_back("group_size", how.block);
  const char* const scales = how.second ? "torch.float8_e4m3fn" : "torch.uint8";
  numbers.emplace_back("scale_dtype", scales);
  numbers.emplace_back("zp_dtype", scales);
}

Json weights_of(const ExportedForm& form) {
  const ModeloptAlgorithm& how = *form.algorithm;
  Json::Object numbers = numbers_of(how, how.zeros);
  if (how.groups == ScaleGroups::kBlocks && !how.element.integer) {
    add_blocks(numbers, how);
  } else if (how.groups == ScaleGroups::kBlocks) {
    numbers.emplace_back("strategy", "group");
    numbers.emplace_back("group_size", form.block);
  } else if (how.groups == ScaleGroups::kTiles) {
    numbers.emplace_back("strategy", "block");
    numbers.emplace_back("block_structure", Json::Array{how.block, how.block});
  } else {
    numbers.emplace_back("strategy", how.groups == ScaleGroups::kRows ? "channel" : "tensor");
  }
  numbers.emplace_back("dynamic", false);
  return numbers;
}

// FP8 and INT8 have a scale that was calibrated, or one for each token; blocks are found in each pass, of
// NVFP4 below a scale that was calibrated.
Json inputs_of(const CompressedModule& group) {
  if (!group.quantizes_inputs) return {};
  const ModeloptAlgorithm& how = *group.form.algorithm;
  Json::Object numbers = numbers_of(how, group.input_zeros);
  if (how.groups == ScaleGroups::kBlocks) {
    add_blocks(numbers, how);
    numbers.emplace_back("dynamic", how.second ? Json("local") : Json(true));
    return numbers;
  }
  numbers.emplace_back("strategy", group.by_token ? "token" : "tensor");
  numbers.emplace_back("dynamic", group.by_token);
  return numbers;
}

}  // namespace

Json compressed_quantization_config(const CompressedModules& modules, const std::set<std::string>& ignored) {
  std::map<CompressedModule, Json::Array, Less> groups;
  for (const auto& [name, module] : modules) {
    if (foreign::compressed_format(*module.form.algorithm).empty())
      fail("[export] {} is {}, which compressed-tensors has no form of: export it in the form of modelopt",
           name, module.form.algorithm->name);
    groups[module].emplace_back(name);
  }
  std::set<std::string_view> formats;
  Json::Object described;
  for (auto& [group, names] : groups) {
    const std::string_view format = foreign::compressed_format(*group.form.algorithm);
    formats.insert(format);
    if (groups.size() == 1) names = {Json("Linear")};
    described.emplace_back(fmt::format("group_{}", described.size()),
                           Json::Object{{"targets", std::move(names)},
                                        {"weights", weights_of(group.form)},
                                        {"input_activations", inputs_of(group)},
                                        {"output_activations", Json()},
                                        {"format", format}});
  }
  return Json::Object{{"quant_method", "compressed-tensors"},
                      {"format", formats.size() == 1 ? Json(*formats.begin()) : Json("mixed-precision")},
                      {"quantization_status", "compressed"},
                      {"config_groups", std::move(described)},
                      {"ignore", Json::Array(ignored.begin(), ignored.end())},
                      {"kv_cache_scheme", Json()},
                      {"producer", Json::Object{{"name", "temper"}, {"version", TEMPER_VERSION}}}};
}

const ModeloptAlgorithm& CompressedParameters::algorithm_of(const TensorInfo& info) const {
  return *modules_.at(info.name.substr(0, info.name.rfind('.'))).form.algorithm;
}

std::vector<TensorInfo> CompressedParameters::list(const WeightSpec& spec) const {
  std::vector<TensorInfo> all;
  for (const TensorInfo& info : encoder_.list(spec))
    for (TensorInfo& own : foreign::compressed_infos(algorithm_of(info), info)) all.push_back(std::move(own));
  return all;
}

std::vector<Tensor> CompressedParameters::encode(const WeightSpec& spec, const Tensor& value) const {
  std::vector<Tensor> all;
  const std::vector<TensorInfo> infos = encoder_.list(spec);
  const std::vector<Tensor> tensors = encoder_.encode(spec, value);
  for (size_t i = 0; i < infos.size(); ++i)
    for (Tensor& own : foreign::compressed_tensors(algorithm_of(infos[i]), infos[i], tensors[i]))
      all.push_back(std::move(own));
  return all;
}

}  // namespace temper::models
