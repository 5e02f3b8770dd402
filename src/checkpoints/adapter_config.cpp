#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "weights/lora_experts.h"

namespace temper::checkpoints {
namespace {

// Where the adapter came from, how it was started or what PEFT does around it; the file's tensors say which
// layers it has.
const std::set<std::string, std::less<>> kNeutral = {
    "auto_mapping",   "eva_config",   "inference_mode",      "layers_pattern", "layers_to_transform",
    "megatron_core",  "peft_version", "qalora_group_size",   "peft_type",      "revision",
    "runtime_config", "task_type",    "ensure_weight_tying", "velora_config",  "parent_library"};

// Absent for our purposes: null, false, 0, "", {} or [].
bool is_empty(const Json& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_number()) return value.as_double() == 0;
  if (value.is_string()) return value.as_string().empty();
  if (value.is_array()) return value.as_array().empty();
  if (value.is_object()) return value.as_object().empty();
  return value.is_null();
}

std::vector<std::string> strings_of(const Json& value) {
  std::vector<std::string> strings;
  for (const Json& item : value.as_array()) strings.push_back(item.as_string());
  return strings;
}

ModuleChoice choice_of(const Json& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) return {.names = strings_of(value)};
  if (value.as_string() == kAllLinear) return {.names = {kAllLinear}};
  return {.regex = value.as_string()};
}

template <class T>
std::vector<std::pair<std::string, T>> patterns_of(const Json& value, T (Json::*as)() const) {
  std::vector<std::pair<std::string, T>> patterns;
  if (value.is_null()) return patterns;
  for (const auto& [pattern, number] : value.as_object()) patterns.emplace_back(pattern, (number.*as)());
  return patterns;
}

LoraBias bias_of(const std::string& name) {
  if (name == "none") return LoraBias::kNone;
  if (name == "all") return LoraBias::kAll;
  if (name == "lora_only") return LoraBias::kLoraOnly;
  fail("expected none, all or lora_only, found '{}'", name);
}

std::string name_of(LoraBias bias) {
  if (bias == LoraBias::kAll) return "all";
  return bias == LoraBias::kLoraOnly ? "lora_only" : "none";
}

// Starts that take something out of the base model's weights need that base model.
void check_start(const Json& value) {
  static const std::set<std::string, std::less<>> kHarmless = {"gaussian", "eva", "orthogonal"};
  if (!value.is_string() || kHarmless.contains(value.as_string())) return;
  fail("'{}' changes the base model's weights; save the adapter converted to a plain LoRA",
       value.as_string());
}

using Setters = std::map<std::string, std::function<void(const Json&, AdapterConfig&)>, std::less<>>;

const Setters& setters() {
  static const Setters all = {
      {"base_model_name_or_path",
       [](const Json& v, AdapterConfig& c) {
         if (!v.is_null()) c.base_model = v.as_string();
       }},
      {"r", [](const Json& v, AdapterConfig& c) { c.lora.rank = v.as_int(); }},
      {"lora_alpha", [](const Json& v, AdapterConfig& c) { c.lora.alpha = v.as_double(); }},
      {"lora_dropout", [](const Json& v, AdapterConfig& c) { c.lora.dropout = v.as_double(); }},
      {"use_rslora", [](const Json& v, AdapterConfig& c) { c.lora.stabilized = v.as_bool(); }},
      {"bias", [](const Json& v, AdapterConfig& c) { c.lora.bias = bias_of(v.as_string()); }},
      {"target_modules", [](const Json& v, AdapterConfig& c) { c.lora.targets = choice_of(v); }},
      {"exclude_modules", [](const Json& v, AdapterConfig& c) { c.lora.excluded = choice_of(v); }},
      {"modules_to_save",
       [](const Json& v, AdapterConfig& c) {
         if (!v.is_null()) c.lora.modules_to_save = strings_of(v);
       }},
      {"target_parameters",
       [](const Json& v, AdapterConfig& c) {
         if (!v.is_null()) c.lora.parameters = strings_of(v);
       }},
      {"rank_pattern",
       [](const Json& v, AdapterConfig& c) { c.lora.rank_pattern = patterns_of<int64_t>(v, &Json::as_int); }},
      {"alpha_pattern",
       [](const Json& v, AdapterConfig& c) {
         c.lora.alpha_pattern = patterns_of<double>(v, &Json::as_double);
       }},
      {"init_lora_weights", [](const Json& v, AdapterConfig&) { check_start(v); }},
  };
  return all;
}

template <class T>
Json patterns_json(const std::vector<std::pair<std::string, T>>& patterns) {
  Json::Object object;
  for (const auto& [pattern, value] : patterns) object.emplace_back(pattern, value);
  return object;
}

Json names_json(const std::vector<std::string>& names) { return Json::Array(names.begin(), names.end()); }

// What PEFT takes: names or an expression.
bool is_expressible(const ModuleChoice& choice) { return choice.names.empty() || choice.regex.empty(); }

Json choice_json(const ModuleChoice& choice) {
  if (choice.empty()) return {};
  return choice.names.empty() ? Json(choice.regex) : names_json(choice.names);
}

constexpr const char* kTowerModules = R"(.*(visual|vision_tower|multi_modal_projector)\..*)";

std::string escaped(const std::string& name) {
  std::string regex;
  for (const char c : name) regex += c == '.' ? std::string("\\.") : std::string(1, c);
  return regex;
}

bool by_parameter(const LoraConfig& config, const LoraTarget& target) {
  return !config.targets.contains(target.module) && names_parameter(config, target.module + ".weight");
}

Json targets_json(const LoraConfig& config, const LoraPlan& plan) {
  const bool all = stands_for_linears(config.targets.names);  // which PEFT takes by itself only
  const bool whole_names =
      config.targets.empty() || !is_expressible(config.targets) || !is_expressible(config.excluded);
  if (!all && !whole_names) return choice_json(config.targets);
  std::set<std::string, std::less<>> modules;
  for (const LoraTarget& target : plan.targets) {
    if (target.stacked() || by_parameter(config, target)) continue;
    if (target.each.empty()) modules.insert(target.module);
    modules.insert(target.each.begin(), target.each.end());
  }
  std::set<std::string> names;
  for (const std::string& module : modules) {
    // The short name, unless it is one of others, too: of experts that are left alone.
    const std::string name = module.substr(module.rfind('.') + 1);
    const bool more = std::any_of(plan.modules.begin(), plan.modules.end(), [&](const LoraModule& other) {
      return is_module(other.name, name) && !modules.contains(other.name);
    });
    names.insert(whole_names || more ? module : name);
  }
  return names_json({names.begin(), names.end()});
}

// PEFT trains each module in full whose name ends so, behind a dot or not: "norm" is every q_norm, too. Where
// those are more than the adapter's, the whole names.
Json saved_json(const LoraConfig& config, const LoraPlan& plan) {
  std::set<std::string, std::less<>> trained;
  for (const LoraSaved& saved : plan.saved)
    if (saved.source.ends_with(".weight")) trained.insert(saved.source.substr(0, saved.source.rfind('.')));
  std::vector<std::string> names;
  for (const std::string& name : config.modules_to_save) {
    const bool more = std::any_of(plan.modules.begin(), plan.modules.end(), [&](const LoraModule& module) {
      return module.name.ends_with(name) && !trained.contains(module.name);
    });
    if (!more) names.push_back(name);
    for (const auto& [module, layer] : plan.modules)
      if (more && is_module(module, name) && trained.contains(module)) names.push_back(module);
  }
  return names.empty() ? Json() : names_json(names);
}

// Towers have modules of the text's names, which PEFT would adapt, too.
Json excluded_json(const LoraConfig& config, const LoraPlan& plan) {
  const auto is_text = [](const LoraModule& module) { return module.name.starts_with(kTextInTables); };
  const Json own = is_expressible(config.excluded) ? choice_json(config.excluded) : Json();
  if (std::none_of(plan.modules.begin(), plan.modules.end(), is_text)) return own;
  std::vector<std::string> all;
  for (const std::string& name : config.excluded.names) all.push_back("(.*\\.)?" + escaped(name));
  if (const std::string& regex = config.excluded.regex; !regex.empty() && regex != kTowerModules)
    all.push_back(fmt::format("({})", regex));
  all.emplace_back(kTowerModules);
  return join(all, "|");
}

// Whole numbers as PEFT's users write them.
Json number_json(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<int64_t>(value))
                                                              : Json(value);
}

// The layers that alone are adapted: PEFT takes their numbers, or one number, 0 as well. None: all.
std::vector<int64_t> layers_of(const Json& config, const std::string& path) {
  const Json* layers = config.find("layers_to_transform");
  if (layers == nullptr || layers->is_null()) return {};
  std::vector<int64_t> numbers;
  for (const Json& number : layers->is_array() ? layers->as_array() : Json::Array{*layers}) {
    if (!number.is_int())
      fail("[{}] 'layers_to_transform' is {}, expected a layer's number or a list of them", path,
           layers->dump());
    numbers.push_back(number.as_int());
  }
  return numbers;
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string path = join_path(folder, kAdapterConfig);
  if (!exists(path))
    fail("[{}] found no {}, expected an adapter's folder as PEFT writes it", folder, kAdapterConfig);
  return parse_adapter_config(Json::parse_file(path), path);
}

AdapterConfig parse_adapter_config(const Json& json, const std::string& path) {
  if (!json.is_object()) fail("[{}] found {}, expected an object", path, json.kind_name());
  const Json* type = json.find("peft_type");
  if (type != nullptr && *type != Json("LORA"))
    fail("[{}] 'peft_type' is {}; Temper has LORA only: train the adapter as one", path, type->dump());
  for (const char* needed : {"peft_type", "r", "lora_alpha"})
    if (json.find(needed) == nullptr)
      fail("[{}] found no '{}'; is this a LoRA adapter of PEFT?", path, needed);
  AdapterConfig config;
  config.lora.targets = {};
  for (const auto& [key, value] : json.as_object()) {
    const auto setter = setters().find(key);
    if (setter == setters().end()) {
      if (kNeutral.contains(key) || is_empty(value)) continue;
      fail("[{}] '{}' is {}; Temper has plain LoRA only", path, key, value.dump());
    }
    try {
      setter->second(value, config);
    } catch (const Error& error) {
      fail("[{}] '{}': {}", path, key, error.what());
    }
  }
  config.named = config.lora.targets;
  config.layers = layers_of(json, path);
  if (!config.layers.empty()) config.lora.targets = {};  // only some of the modules that these name
  const Json* tying = json.find("ensure_weight_tying");
  config.ties_weights = tying != nullptr && !is_empty(*tying);
  check_pattern_syntax(config.lora, fmt::format("[{}] 'rank_pattern'", path),
                       fmt::format("[{}] 'alpha_pattern'", path));
  if (config.lora.rank < 1) fail("[{}] 'r' is {}, expected at least 1", path, config.lora.rank);
  return config;
}

void check_apart(const AdapterConfig& config, const WeightTable& base, const std::string& folder) {
  if (!config.ties_weights || base.tied().empty()) return;
  if (const std::string& regex = config.lora.targets.regex; !regex.empty())
    check_syntax(regex, fmt::format("[{}] 'target_modules'", join_path(folder, kAdapterConfig)));
  const ModuleChoice whole{.names = config.lora.modules_to_save};
  for (const char* module : {"model.embed_tokens", "lm_head"})
    if (config.lora.targets.contains(module) || whole.contains(module))
      fail(
          "[{}] 'ensure_weight_tying' is true: what changes {} would change the embedding and the head as "
          "one, "
          "which Temper keeps apart; train the adapter without it",
          folder, module);
}

Json adapter_config_json(const LoraConfig& config, const LoraPlan& plan, const std::string& base_model) {
  // The head of a model that gives values, by the name that Hugging Face's classes have for it.
  const bool gives_values = std::any_of(plan.saved.begin(), plan.saved.end(), [](const LoraSaved& saved) {
    return saved.source == "score.weight";
  });
  return Json::Object{
      {"alpha_pattern", patterns_json(config.alpha_pattern)},
      {"base_model_name_or_path", base_model.empty() ? Json() : Json(base_model)},
      {"bias", name_of(config.bias)},
      {"exclude_modules", excluded_json(config, plan)},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_alpha", number_json(config.alpha)},
      {"lora_bias", false},
      {"lora_dropout", config.dropout},
      {"modules_to_save", saved_json(config, plan)},
      {"peft_type", "LORA"},
      {"r", config.rank},
      {"rank_pattern", patterns_json(config.rank_pattern)},
      {"target_modules", targets_json(config, plan)},
      {"target_parameters", config.parameters.empty() ? Json() : names_json(config.parameters)},
      {"task_type", gives_values ? "SEQ_CLS" : "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", config.stabilized}};
}

}  // namespace temper::checkpoints
