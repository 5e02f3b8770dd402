#include "weights/lora_experts.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace temper {
namespace {

std::string parent_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// All experts of a kind, or none.
void check_all(const std::vector<std::string>& adapted, const std::vector<std::string>& all,
               const std::string& where) {
  if (adapted.size() == all.size()) return;
  const auto missing = std::find_if(all.begin(), all.end(), [&](const std::string& module) {
    return std::find(adapted.begin(), adapted.end(), module) == adapted.end();
  });
  fail("[{}] {} of {} experts would be adapted, '{}' not; adapt all experts of a layer, or none", where,
       adapted.size(), all.size(), *missing);
}

void check_alike(const LoraTarget& target, const LoraConfig& config, const std::string& where) {
  for (const std::string& module : target.each)
    if (config.rank_of(module) != target.rank || config.scale_of(module) != target.scale)
      fail("[{}] '{}' has rank {} and '{}' {}, or other alphas; experts of a layer need the same", where,
           target.module, target.rank, module, config.rank_of(module));
}

}  // namespace

std::vector<LoraTarget> targets_of_modules(const WeightSpec& spec,
                                           const std::function<bool(const std::string& module)>& chosen,
                                           const LoraConfig& config, const std::string& where) {
  const auto experts = static_cast<size_t>(spec.stacked_shape[0]);
  const size_t kinds = spec.sources.size() / experts;
  std::vector<LoraTarget> targets;
  int64_t row = 0;
  for (size_t kind = 0; kind < kinds; ++kind) {
    std::vector<std::string> all, adapted;
    for (size_t e = 0; e < experts; ++e) all.push_back(parent_of(spec.sources[e * kinds + kind].name));
    std::copy_if(all.begin(), all.end(), std::back_inserter(adapted), chosen);
    const int64_t rows = spec.sources[kind].rows;
    if (!adapted.empty()) {
      check_all(adapted, all, where);
      LoraTarget target{
          all.front(), &spec, row, rows, config.rank_of(all.front()), config.scale_of(all.front())};
      target.experts = spec.stacked_shape[0];
      target.each = std::move(all);
      check_alike(target, config, where);
      targets.push_back(std::move(target));
    }
    row += rows;
  }
  return targets;
}

std::vector<LoraTarget> targets_of_parameters(const WeightTable& base, const LoraConfig& config) {
  std::vector<LoraTarget> targets;
  for (const WeightSpec& spec : base.specs()) {
    if (spec.lora != LoraRole::kExperts || !names_parameter(config, spec.stacked)) continue;
    LoraTarget target{spec.stacked,
                      &spec,
                      0,
                      spec.stacked_shape[1],
                      config.rank_of(spec.stacked),
                      config.scale_of(spec.stacked)};
    target.experts = spec.stacked_shape[0];
    targets.push_back(std::move(target));
  }
  // PEFT wraps a module once for each of its parameters: the last one is the outermost.
  std::map<std::string, std::string> wrapped;
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    const std::string parent = parent_of(target->module);
    std::string& file = wrapped.try_emplace(parent, parent).first->second;
    target->file = file;
    file += ".base_layer";
  }
  return targets;
}

bool names_parameter(const LoraConfig& config, std::string_view parameter) {
  return std::any_of(config.parameters.begin(), config.parameters.end(),
                     [&](const std::string& name) { return is_module(parameter, name); });
}

void check_parameters(const WeightTable& base, const LoraConfig& config, const std::string& where) {
  std::vector<std::string> names;
  for (const WeightSpec& spec : base.specs()) {
    if (spec.lora == LoraRole::kExperts)
      names.push_back(spec.stacked);
    else if (spec.lora != LoraRole::kNone)
      for (const WeightSource& source : spec.sources) names.push_back(source.name);
  }
  for (const std::string& name : config.parameters) {
    const auto is = [&](const std::string& parameter) { return is_module(parameter, name); };
    if (std::any_of(names.begin(), names.end(), is)) continue;
    const std::string nearest = nearest_name(name, names);
    fail(
        "[{}] no parameter is called '{}'{}; expected a stacked tensor of experts, where the model has them, "
        "or a module's weight, for example '{}'",
        where, name, nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest),
        names.empty() ? "" : names.back());
  }
}

}  // namespace temper
