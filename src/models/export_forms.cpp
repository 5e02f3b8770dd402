#include "models/export_forms.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "models/export_integers.h"
#include "version.h"

namespace temper::models {
namespace {

using quantizers::PlannedQuantizer;
using quantizers::Sharing;

enum class Inputs { kAsTheyAre, kCalibrated, kAny };  // kAny: with a scale of their own or without one

// A pair of quantizers and its name.
struct Combination {
  std::string_view weight;
  Sharing sharing;
  Inputs inputs;
  std::string_view input;  // "" of kAsTheyAre
  Sharing input_sharing;
  std::string_view algorithm;
  std::string_view scaled = {};  // where columns have factors; "": readers know none there
  std::string_view again = {};   // what weights are rounded to once more
};

constexpr Combination kCombinations[] = {
    {"fp8", Sharing::kTensor, Inputs::kCalibrated, "fp8", Sharing::kTensor, "FP8"},
    {"fp8", Sharing::kRow, Inputs::kAny, "fp8", Sharing::kRow, "FP8_PER_CHANNEL_PER_TOKEN"},
    {"fp8", Sharing::kTile, Inputs::kAsTheyAre, "", Sharing::kTensor, "fp8_pb_wo"},
    {"int8", Sharing::kRow, Inputs::kCalibrated, "int8", Sharing::kTensor, "W8A8_SQ_PER_CHANNEL",
     "W8A8_SQ_PER_CHANNEL"},
    {"int8", Sharing::kRow, Inputs::kAsTheyAre, "", Sharing::kTensor, "W8A16"},
    {"int4", Sharing::kBlock, Inputs::kAsTheyAre, "", Sharing::kTensor, "W4A16_AWQ", "W4A16_AWQ"},
    {"int4", Sharing::kBlock, Inputs::kCalibrated, "fp8", Sharing::kTensor, "W4A8_AWQ", "W4A8_AWQ", "fp8"},
    {"nvfp4", Sharing::kTensor, Inputs::kCalibrated, "nvfp4", Sharing::kTensor, "NVFP4", "NVFP4_AWQ"},
    {"nvfp4", Sharing::kTensor, Inputs::kAsTheyAre, "", Sharing::kTensor, "W4A16_NVFP4", "NVFP4_AWQ"},
    {"mxfp8", Sharing::kTensor, Inputs::kAny, "mxfp8", Sharing::kTensor, "MXFP8"},
    {"mxfp4", Sharing::kTensor, Inputs::kAny, "mxfp4", Sharing::kTensor, "mxfp4"},
    {"mxfp4", Sharing::kTensor, Inputs::kAsTheyAre, "", Sharing::kTensor, "mxfp4"},
    {"mxfp4", Sharing::kTensor, Inputs::kAny, "fp8", Sharing::kTensor, "W4A8_MXFP4_FP8"}};

bool fits(const Combination& row, const PlannedQuantizer& weight, const PlannedQuantizer* input) {
  if (weight.kind.format != row.weight || weight.kind.sharing != row.sharing ||
      weight.kind.again != row.again)
    return false;
  if (input == nullptr || row.inputs == Inputs::kAsTheyAre)
    return input == nullptr && row.inputs == Inputs::kAsTheyAre;
  return input->kind.format == row.input && input->kind.sharing == row.input_sharing &&
         (row.inputs == Inputs::kAny || input->keeps_amax());
}

const char* per(Sharing sharing) {
  return sharing == Sharing::kTensor  ? ""
         : sharing == Sharing::kRow   ? " per channel"
         : sharing == Sharing::kBlock ? " in blocks"
                                      : " in tiles of 128 × 128";
}

std::string sentence_of(const Combination& row) {
  const std::string weight =
      fmt::format("{}{}{}{}", row.weight, per(row.sharing), row.again.empty() ? "" : ", then ", row.again);
  if (row.inputs == Inputs::kAsTheyAre) return weight + " alone";
  return fmt::format("{} with {}{}{}", weight, row.inputs == Inputs::kCalibrated ? "calibrated " : "",
                     row.input, row.input_sharing == Sharing::kRow ? " per token" : "");
}

[[noreturn]] void refuse(const PlannedQuantizer& weight, const PlannedQuantizer* input) {
  std::vector<std::string> known;
  for (const Combination& row : kCombinations) known.push_back(sentence_of(row));
  const std::string inputs = input == nullptr
                                 ? "inputs that are not quantized"
                                 : fmt::format("inputs in {} per {}{}", input->kind.format, input->groups(),
                                               input->kind.dynamic ? ", dynamic" : "");
  fail("[export] {} is {} per {} with {}: readers know {}", weight.name, weight.formats(), weight.groups(),
       inputs, fmt::join(known, "; "));
}

constexpr int64_t kTile = 128;  // that readers take for granted

// Numbers of a group of modules, as compressed-tensors describes them.
Json numbers(int bits, bool integers, int64_t block, bool channels) {
  Json::Object object{{"dynamic", false}, {"num_bits", int64_t{bits}}, {"type", integers ? "int" : "float"}};
  if (block > 0) object.emplace_back("group_size", block);
  if (channels) object.emplace_back("strategy", "channel");
  return object;
}

std::string_view name_of(const ExportedForm& form) { return form.algorithm->name; }

Json producer() { return Json::Object{{"name", "temper"}, {"version", TEMPER_VERSION}}; }

// The algorithm as configurations name it, with what readers need of it.
Json::Object algorithm_json(const ExportedForm& form, const Json* cache) {
  Json::Object object{{"quant_algo", name_of(form)}};
  if (cache != nullptr) object.emplace_back("kv_cache_quant_algo", *cache);
  if (form.block > 0) object.emplace_back("group_size", form.block);
  if (name_of(form) == "W4A16_AWQ" || name_of(form) == "W4A8_AWQ" || name_of(form) == "NVFP4_AWQ") {
    object.emplace_back("has_zero_point", false);
    object.emplace_back("pre_quant_scale", true);
  }
  return object;
}

Json quantized_layers(const ExportedModules& modules) {
  Json::Object layers;
  for (const auto& [module, form] : modules.quantized)
    layers.emplace_back(module, algorithm_json(form, nullptr));
  return layers;
}

std::set<ExportedForm> forms_of(const ExportedModules& modules) {
  std::set<ExportedForm> forms;
  for (const auto& [module, form] : modules.quantized) forms.insert(form);
  return forms;
}

Json::Array names_in(const std::set<std::string>& names) { return {names.begin(), names.end()}; }

// What nvidia-modelopt says of modules in groups; of some algorithms only their names.
Json::Object group_of(const ExportedForm& form) {
  const std::string_view name = name_of(form);
  if (name == "fp8_pb_wo" || name == "mxfp4") return {{"quant_algo", name}};
  const quant::Element& element = form.algorithm->element;
  const bool alone = name == "W4A16_AWQ" || name == "W4A16_NVFP4" || name == "W8A16";
  const bool channels = form.algorithm->groups == foreign::ScaleGroups::kRows && name != "W8A16";
  Json::Object group;
  if (name == "W4A8_AWQ")  // nvidia-modelopt calls these integers floats, and gives blocks to inputs, too
    return {{"input_activations", numbers(8, false, form.block, false)},
            {"weights", numbers(4, false, form.block, false)}};
  if (name == "W4A8_MXFP4_FP8")
    group.emplace_back("input_activations", numbers(8, false, 0, false));
  else if (!alone)
    group.emplace_back("input_activations", numbers(element.bits, element.integer, form.block, false));
  group.emplace_back("weights", numbers(element.bits, element.integer, form.block, channels));
  return group;
}

// Readers that know compressed-tensors' configuration understand these without a list of modules.
bool has_group_of_all(const ExportedForm& form) {
  return name_of(form) == "FP8" || name_of(form) == "NVFP4" || name_of(form) == "W4A16_NVFP4";
}

Json config_groups(const ExportedModules& modules, const std::set<ExportedForm>& forms) {
  Json::Object groups;
  for (const ExportedForm& form : forms) {
    Json::Array targets{"Linear"};
    if (forms.size() > 1) {
      targets.clear();
      for (const auto& [module, own] : modules.quantized)
        if (!(own < form) && !(form < own)) targets.emplace_back(module);
    }
    Json::Object group = group_of(form);
    group.emplace_back("targets", std::move(targets));
    groups.emplace_back(fmt::format("group_{}", groups.size()), std::move(group));
  }
  return groups;
}

}  // namespace

ExportedForm exported_form(const PlannedQuantizer& weight, const PlannedQuantizer* input) {
  if (const std::optional<ExportedForm> form = integer_form(weight, input)) return *form;
  for (const Combination& row : kCombinations) {
    if (!fits(row, weight, input)) continue;
    const std::string_view algorithm = weight.scales_columns() ? row.scaled : row.algorithm;
    if (algorithm.empty())
      fail("[export] {} is {} with factors of columns ({}._pre_quant_scale), which readers do not know there",
           weight.name, sentence_of(row), weight.module() + ".input_quantizer");
    ExportedForm form{foreign::find_modelopt_algorithm(algorithm), 0};
    if (row.sharing == Sharing::kTile && weight.kind.block != kTile)
      fail("[export] {} has tiles of {} × {}: readers know those of {} × {}", weight.name, weight.kind.block,
           weight.kind.block, kTile, kTile);
    if (row.sharing == Sharing::kBlock)
      form.block = weight.kind.block;
    else if (form.algorithm->groups == foreign::ScaleGroups::kBlocks && row.algorithm != "mxfp4")
      form.block = form.algorithm->block;
    return form;
  }
  refuse(weight, input);
}

Json hf_quant_config(const ExportedModules& modules) {
  const std::set<ExportedForm> forms = forms_of(modules);
  const Json cache = modules.float8_cache ? Json("FP8") : Json();
  Json::Object how{{"quant_algo", "MIXED_PRECISION"}, {"kv_cache_quant_algo", cache}};
  if (forms.size() == 1)
    how = algorithm_json(*forms.begin(), &cache);
  else
    how.emplace_back("quantized_layers", quantized_layers(modules));
  how.emplace_back("exclude_modules", names_in(modules.excluded));
  return Json::Object{{"producer", producer()}, {"quantization", std::move(how)}};
}

Json quantization_config(const ExportedModules& modules) {
  const std::set<ExportedForm> forms = forms_of(modules);
  const bool mixed = forms.size() > 1;
  Json::Object config;
  if (mixed || has_group_of_all(*forms.begin()))
    config.emplace_back("config_groups", config_groups(modules, forms));
  if (mixed) config.emplace_back("quantized_layers", quantized_layers(modules));
  config.emplace_back("ignore", names_in(modules.excluded));
  config.emplace_back("quant_algo", mixed ? Json("MIXED_PRECISION") : Json(name_of(*forms.begin())));
  if (config.front().first != "config_groups" && forms.begin()->block > 0)
    config.emplace_back("group_size", forms.begin()->block);
  if (modules.float8_cache) config.emplace_back("kv_cache_scheme", numbers(8, false, 0, false));
  config.emplace_back("producer", producer());
  config.emplace_back("quant_method", "modelopt");
  return config;
}

}  // namespace temper::models
