#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/files/names.h"
#include "weights/lora_experts.h"

namespace temper::checkpoints {
namespace {

std::string place_of(const std::string& folder) { return join_path(folder, kAdapterConfig); }
std::string last_part_of(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// The modules that a target of the file means; none for a stacked tensor of experts, which the configuration
// names separately.
std::vector<std::string> modules_of(const LoraTarget& target) {
  if (target.stacked()) return {};
  return target.each.empty() ? std::vector{target.module} : target.each;
}

// Whether the configuration is about a weight of this layer: where it names layers, not about those of none.
bool is_of_layers(const AdapterConfig& config, std::optional<int64_t> layer) {
  return config.layers.empty() ||
         std::any_of(config.layers.begin(), config.layers.end(), [&](int64_t each) { return layer == each; });
}

bool is_named(const AdapterConfig& config, const LoraTarget& target, const std::string& module) {
  if (names_parameter(config.lora, module + ".weight")) return true;
  if (config.lora.excluded.contains(module) || !is_of_layers(config, target.spec->layer)) return false;
  const LoraRole role = target.spec->lora;
  const bool in_all =
      stands_for_linears(config.named.names) && role != LoraRole::kHead && role != LoraRole::kEmbedding;
  return in_all || config.named.contains(module);
}

// Targets that are no module, ranks and alphas of no adapted one.
void warn_of_strangers(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder) {
  std::vector<std::string> strangers;
  const auto add = [&](const std::string& entry, const char* key) {
    strangers.push_back(fmt::format("'{}' ({})", entry, key));
  };
  for (const std::string& name : config.named.names) {
    const auto is = [&](const LoraModule& module) { return is_module(module.name, name); };
    if (name != kAllLinear && std::none_of(plan.modules.begin(), plan.modules.end(), is))
      add(name, "target_modules");
  }
  const auto add_patterns = [&](const auto& patterns, const char* key) {
    for (const auto& [pattern, value] : patterns) {
      const auto is = [&](const LoraTarget& t) { return matches_module_pattern(t.module, pattern); };
      if (std::none_of(plan.targets.begin(), plan.targets.end(), is)) add(pattern, key);
    }
  };
  add_patterns(config.lora.rank_pattern, "rank_pattern");
  add_patterns(config.lora.alpha_pattern, "alpha_pattern");
  if (!strangers.empty())
    log_warning(fmt::format("[{}] no adapted module matches {}", place_of(folder), join(strangers)));
}

// Adapted modules that the configuration names and the file leaves out. "all-linear" names those that are
// called as the adapted ones are.
void warn_of_missing_targets(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder) {
  const ModuleChoice whole{.names = config.lora.modules_to_save};
  std::set<std::string, std::less<>> adapted, kinds;
  for (const LoraTarget& target : plan.targets) {
    adapted.insert(target.module);
    for (const std::string& module : modules_of(target)) {
      adapted.insert(module);
      kinds.insert(last_part_of(module));
    }
  }
  const bool all = stands_for_linears(config.named.names);
  std::vector<std::string> missing;
  for (const auto& [module, layer] : plan.modules) {
    const bool named = config.named.contains(module) || (all && kinds.contains(last_part_of(module)));
    if (named && is_of_layers(config, layer) && !config.lora.excluded.contains(module) &&
        !whole.contains(module) && !adapted.contains(module))
      missing.push_back(module);
  }
  if (missing.empty()) return;
  const std::string last = missing.size() > 1 ? " to " + missing.back() : "";
  log_warning(
      fmt::format("[{}] {} of {} modules that target_modules names have no tensors in the adapter's file and "
                  "stay as they are: {}{}; was it trained on a smaller model?",
                  place_of(folder), missing.size(), missing.size() + adapted.size(), missing.front(), last));
}

// Modules that are trained in full, by the configuration or by the file, but not by both.
void warn_of_saved(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder) {
  const ModuleChoice whole{.names = config.lora.modules_to_save};
  std::set<std::string, std::less<>> saved;
  std::vector<std::string> missing, unnamed;
  for (const LoraSaved& each : plan.saved) {
    const std::string module = each.source.substr(0, each.source.rfind('.'));
    const bool bias = each.source.ends_with(".bias");
    if (!bias) saved.insert(module);
    // PEFT asks what names end with, behind a dot or not.
    const auto is = [&](const std::string& name) { return module.ends_with(name); };
    if (std::none_of(whole.names.begin(), whole.names.end(), is) &&
        !(bias && config.lora.bias != LoraBias::kNone))
      unnamed.push_back(each.source);
  }
  for (const auto& [module, layer] : plan.modules)
    if (whole.contains(module) && !saved.contains(module)) missing.push_back(module);
  if (!missing.empty())
    log_warning(fmt::format(
        "[{}] modules_to_save names {}, but the adapter's file has no such weights: they stay the "
        "model's",
        place_of(folder), list_some(missing)));
  if (!unnamed.empty())
    log_warning(
        fmt::format("[{}] the adapter's file replaces {} of the model, which modules_to_save does not name",
                    place_of(folder), list_some(unnamed)));
}

}  // namespace

void check_named(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder) {
  if (config.named.empty() && config.lora.parameters.empty()) return;  // the file alone says it
  if (const std::string& regex = config.named.regex; !regex.empty())
    check_syntax(regex, fmt::format("[{}] 'target_modules'", place_of(folder)));
  std::vector<std::string> unnamed;
  for (const LoraTarget& target : plan.targets)
    for (const std::string& module : modules_of(target))
      if (!is_named(config, target, module)) unnamed.push_back(module);
  if (unnamed.empty()) return;
  fail(
      "[{}] target_modules does not name {}, but the adapter's file has their tensors; add what is missing "
      "to "
      "adapter_config.json{}, or save the adapter again",
      place_of(folder), list_some(unnamed), config.layers.empty() ? "" : " (see layers_to_transform, too)");
}

void check_agreement(const AdapterConfig& config, const LoraPlan& plan, const std::string& folder) {
  check_named(config, plan, folder);
  warn_of_strangers(config, plan, folder);
  warn_of_missing_targets(config, plan, folder);
  warn_of_saved(config, plan, folder);
}

}  // namespace temper::checkpoints
