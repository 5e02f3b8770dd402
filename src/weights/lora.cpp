#include "weights/lora.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "weights/lora_experts.h"

namespace temper {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias";

// Of what is no target: "all-linear" is not a module's name.
void check_plain_names(const std::vector<std::string>& names, const std::vector<std::string>& modules,
                       const std::string& where) {
  if (stands_for_linears(names))
    fail(
        "[{}] '{}' is not a module's name: it means every linear in target_modules only; name the "
        "modules",
        where, kAllLinear);
  check_names(names, modules, modules, where);
}

// The modules that have a weight, of their own or tied, with its place.
struct Module {
  std::string name;
  WeightTable::Place place;
};

std::vector<Module> modules_of(const WeightTable& base) {
  std::vector<Module> modules;
  const auto add = [&](const WeightSpec& spec) {
    for (const WeightSource& source : spec.sources)
      if (source.name.ends_with(kWeight))
        modules.push_back(
            {source.name.substr(0, source.name.size() - kWeight.size()), base.find_target(source.name)});
  };
  for (const WeightSpec& spec : base.specs()) add(spec);
  for (const WeightTable::Tied& tied : base.tied()) add(tied.spec);
  return modules;
}

std::vector<std::string> adaptable(const std::vector<Module>& modules) {
  std::vector<std::string> names;
  for (const Module& module : modules)
    if (module.place.spec->lora != LoraRole::kNone) names.push_back(module.name);
  return names;
}

void check_targets(const ModuleChoice& targets, const std::vector<Module>& modules,
                   const std::vector<std::string>& all, const std::string& where) {
  std::vector<std::string> names = targets.names;
  std::erase(names, kAllLinear);
  check_names(names, all, adaptable(modules), where + "target_modules");
  check_regex(targets.regex, all, where + "target_regex");
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

// Of ranks or of alphas (`what`): both are written as `patterns`. Files have them as keys of one object,
// where none may stand twice.
template <class T>
void check_patterns(const std::vector<std::pair<std::string, T>>& patterns,
                    const std::vector<LoraTarget>& targets, const std::string& where, const char* what) {
  for (const auto& [pattern, value] : patterns) {
    const auto first = std::find_if(patterns.begin(), patterns.end(),
                                    [&](const auto& other) { return other.first == pattern; });
    if (&first->second != &value)
      fail("[{}patterns] '{}' has two {}s, {} and {}; the first alone would count: leave one of them out",
           where, pattern, what, first->second, value);
    if (!is_positive(static_cast<double>(value)))
      fail("[{}patterns] '{}': {} is {}, expected a finite number above 0", where, pattern, what, value);
    const auto matches = [&](const LoraTarget& t) { return matches_module_pattern(t.module, pattern); };
    if (std::none_of(targets.begin(), targets.end(), matches))
      fail("[{}patterns] the pattern '{}' matches no adapted module; the first of them is '{}'", where,
           pattern, targets.front().module);
  }
}

void check_numbers(const LoraConfig& config, const std::string& where) {
  if (config.rank < 1) fail("[{}rank] is {}, expected at least 1", where, config.rank);
  if (!is_positive(config.alpha))
    fail("[{}alpha] is {}, expected a finite number above 0", where, config.alpha);
  if (!(config.dropout >= 0 && config.dropout < 1))
    fail("[{}dropout] is {}, expected 0 or more, below 1", where, config.dropout);
}

// No update of a matrix has a rank above its smaller side; the default rank is not refused to tiny models.
void check_ranks(const std::vector<LoraTarget>& targets, const std::string& where) {
  constexpr int64_t kDefault = 16;
  int64_t largest = 0;
  for (const LoraTarget& target : targets) {
    const int64_t rows = target.rows > 0 ? target.rows : target.spec->shape[0];
    largest = std::max(largest, std::min(rows, target.spec->shape[1]));
  }
  for (const LoraTarget& target : targets)
    if (target.rank > std::max(largest, kDefault))
      fail(
          "[{}rank] is {} for '{}', larger than the matrices that are adapted: a rank of {} is all that they "
          "have",
          where, target.rank, target.module, largest);
}

LoraTarget target_of(const Module& module, const LoraConfig& config) {
  return {module.name,       module.place.spec,           module.place.row,
          module.place.rows, config.rank_of(module.name), config.scale_of(module.name)};
}

// Of one product, by the names of its modules or of its stacked tensor.
void add_experts(const std::vector<LoraTarget>& stacked, const WeightSpec& spec, const LoraConfig& config,
                 const std::function<bool(const std::string&)>& chosen, const std::string& where,
                 LoraPlan& plan) {
  std::vector<LoraTarget> targets = targets_of_modules(spec, chosen, config, where + "target_modules");
  for (const LoraTarget& target : stacked) {
    if (target.spec != &spec) continue;
    if (!targets.empty())
      fail("[{}target_parameters] '{}' would be adapted twice: target_modules names its experts, too", where,
           target.module);
    targets.push_back(target);
  }
  for (LoraTarget& target : targets) plan.targets.push_back(std::move(target));
}

// Modules that are trained whole, with their biases, and the biases that are trained besides.
void add_saved(const WeightTable& base, const LoraConfig& config, LoraPlan& plan) {
  std::set<std::string, std::less<>> adapted;
  for (const LoraTarget& target : plan.targets) adapted.insert(target.module);
  const ModuleChoice whole{.names = config.modules_to_save};
  const auto add = [&](const WeightSpec& spec) {
    for (const WeightSource& source : spec.sources) {
      const std::string module = source.name.substr(0, source.name.rfind('.'));
      const bool bias = source.name.ends_with(kBias);
      const bool trained =
          config.bias == LoraBias::kAll || (config.bias == LoraBias::kLoraOnly && adapted.contains(module));
      if (!whole.contains(module) && !(bias && trained)) continue;
      // PEFT wraps the modules that it adapts.
      const std::string file = adapted.contains(module) ? module + ".base_layer.bias" : source.name;
      plan.saved.push_back({source.name, std::string(kAdapterPrefix) + file});
    }
  };
  for (const WeightSpec& spec : base.specs()) add(spec);
  for (const WeightTable::Tied& tied : base.tied()) add(tied.spec);
}

}  // namespace

void check_dropout(const LoraPlan& plan, double dropout, const std::string& where) {
  if (dropout == 0) return;
  for (const LoraTarget& target : plan.targets)
    if (target.spec->lora == LoraRole::kExperts || target.spec->lora == LoraRole::kRouter)
      fail(
          "[{}] is {}, but what experts and routers read has no dropout, as in PEFT, and '{}' is adapted; "
          "set it "
          "to 0, or adapt them by an adapter of their own",
          where, dropout, target.module);
}

bool stands_for_linears(const std::vector<std::string>& targets) {
  return std::find(targets.begin(), targets.end(), kAllLinear) != targets.end();
}

int64_t LoraConfig::rank_of(std::string_view module) const {
  for (const auto& [pattern, value] : rank_pattern)
    if (matches_module_pattern(module, pattern)) return value;
  return rank;
}

double LoraConfig::scale_of(std::string_view module) const {
  double numerator = alpha;
  for (const auto& [pattern, value] : alpha_pattern)
    if (matches_module_pattern(module, pattern)) {
      numerator = value;
      break;
    }
  const auto r = static_cast<double>(rank_of(module));
  return numerator / (stabilized ? std::sqrt(r) : r);
}

std::vector<LoraModule> modules_with_weights(const WeightTable& base) {
  std::vector<LoraModule> found;
  for (Module& module : modules_of(base)) found.push_back({std::move(module.name), module.place.spec->layer});
  return found;
}

void check_pattern_syntax(const LoraConfig& config, const std::string& ranks, const std::string& alphas) {
  for (const auto& [pattern, value] : config.rank_pattern) check_syntax(pattern, ranks);
  for (const auto& [pattern, value] : config.alpha_pattern) check_syntax(pattern, alphas);
}

LoraPlan plan_lora(const WeightTable& base, const LoraConfig& config, const std::string& where) {
  check_numbers(config, where);
  const std::vector<Module> modules = modules_of(base);
  LoraPlan plan;
  plan.modules = modules_with_weights(base);
  std::vector<std::string> names;
  for (const Module& module : modules) names.push_back(module.name);
  check_targets(config.targets, modules, names, where);
  check_plain_names(config.excluded.names, names, where + "exclude_modules");
  check_regex(config.excluded.regex, names, where + "exclude_regex");
  check_plain_names(config.modules_to_save, names, where + "modules_to_save");
  check_pattern_syntax(config, fmt::format("[{}patterns]", where), fmt::format("[{}patterns]", where));
  check_parameters(base, config, where + "target_parameters");
  const ModuleChoice whole{.names = config.modules_to_save};
  const bool all = stands_for_linears(config.targets.names);
  const auto by_name = [&](const std::string& module) {
    return config.targets.contains(module) && !config.excluded.contains(module);
  };
  const std::vector<LoraTarget> stacked = targets_of_parameters(base, config);
  const WeightSpec* experts = nullptr;  // whose modules are done
  for (const Module& module : modules) {
    const LoraRole role = module.place.spec->lora;
    if (role == LoraRole::kExperts) {
      if (whole.contains(module.name))
        fail("[{}modules_to_save] '{}' is an expert, of which an adapter has no copy; adapt the experts",
             where, module.name);
      if (std::exchange(experts, module.place.spec) != module.place.spec)
        add_experts(stacked, *experts, config, by_name, where, plan);
      continue;
    }
    const bool named = by_name(module.name) || names_parameter(config, module.name + std::string(kWeight));
    if (!(all && role == LoraRole::kLinear) && !named) continue;
    if (config.excluded.contains(module.name) || whole.contains(module.name)) continue;
    if (role == LoraRole::kNone)
      fail("[{}target_modules] '{}' cannot be adapted; linears, experts, the embedding and the head can: {}",
           where, module.name, join(adaptable(modules), ", ").substr(0, 300));
    plan.targets.push_back(target_of(module, config));
  }
  check_dropout(plan, config.dropout, where + "dropout");
  if (plan.targets.empty())
    fail("[{}target_modules] without exclude_modules and modules_to_save leave no module to adapt", where);
  check_ranks(plan.targets, where);
  check_patterns(config.rank_pattern, plan.targets, where, "rank");
  check_patterns(config.alpha_pattern, plan.targets, where, "alpha");
  add_saved(base, config, plan);
  check_products(base, plan, where + "modules_to_save");
  return plan;
}

}  // namespace temper
