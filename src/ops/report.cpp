#include "ops/report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/parts/rooms.h"
#include "base/text.h"

namespace temper::ops {
namespace {

std::string reason_of(const Choice& choice) {
  if (choice.op.empty())
    return has_op(field_of(choice.field)) ? "written; this model does not use the op"
                                          : "written; no op of this version reads it";
  if (choice.fallback) return "for every field that is left out";
  if (!choice.preferred.empty()) return choice.preferred;
  if (choice.written.empty())
    return choice.passed_over.empty() ? "default" : "default, the first that can run";
  return choice.written == choice.provider ? "written" : fmt::format("written as {}", choice.written);
}

const FieldNames& names_of(const Choice& choice, const HardwareFacts& facts) {
  static const FieldNames kNone;
  const auto& fields = hardware_table(facts.hardware).fields;
  const auto found = fields.find(field_of(choice.field));
  return found == fields.end() ? kNone : found->second;
}

// The names that stand for a kernel which may be written here.
std::vector<KernelName> usable_names(const Choice& choice, const HardwareFacts& facts) {
  const std::vector<std::string> possible = possible_names({field_of(choice.field), facts});
  std::vector<KernelName> names = names_of(choice, facts).names;
  std::erase_if(names, [&](const KernelName& name) {
    return std::find(possible.begin(), possible.end(), name.name) == possible.end();
  });
  return names;
}

// Kernels that were not chosen, then those that this hardware knows and this build does not have; none where
// the field is unused.
std::vector<PassedOver> not_chosen(const Choice& choice, const HardwareFacts& facts) {
  if (choice.op.empty()) return {};
  std::vector<PassedOver> all = choice.passed_over;
  all.insert(all.end(), choice.others.begin(), choice.others.end());
  for (const KernelName& name : names_of(choice, facts).names) {
    const auto same = [&](const PassedOver& other) { return other.provider == name.provider; };
    if (name.provider != choice.provider && std::none_of(all.begin(), all.end(), same))
      all.push_back({name.provider, "not in this build" + why_left_out("backends", name.provider)});
  }
  return all;
}

bool is_batch_invariant(const Choice& choice) {
  const OpInfo* op = choice.op.empty() ? nullptr : op_infos().find(choice.op);
  if (op == nullptr) return false;
  const std::vector<KernelInfo> kernels = op->kernels();
  return std::any_of(kernels.begin(), kernels.end(), [&](const KernelInfo& kernel) {
    return kernel.provider == choice.provider && kernel.batch_invariant;
  });
}

Json json_of(const std::optional<Shortfall>& shortfall) {
  if (!shortfall) return {};
  return Json::Object{{"best", shortfall->provider.empty() ? Json() : Json(shortfall->provider)},
                      {"reason", shortfall->reason},
                      {"cost", shortfall->cost}};
}

std::string behind_the_best(const Shortfall& shortfall) {
  if (shortfall.provider.empty()) return "NOT THE BEST for this hardware: " + shortfall.reason;
  return fmt::format("NOT THE BEST for this hardware, that is {}{}", shortfall.provider,
                     shortfall.cost.empty() ? "" : ": without it " + shortfall.cost);
}

}  // namespace

std::string explain(const std::vector<Choice>& choices, const HardwareFacts& facts) {
  std::string out;
  for (const Choice& choice : choices) {
    const std::string name = choice.modules.empty() ? choice.field : "  in " + choice.modules;
    out +=
        fmt::format("{:<37} {:<8} {}\n", name, choice.op.empty() ? "-" : choice.provider, reason_of(choice));
    const auto line = [&](const std::string& text) { out += fmt::format("{:<37} {}\n", "", text); };
    for (const std::string& tiling : choice.tilings) line("tiles " + tiling);
    for (const std::string& pass : choice.passes) line("with " + pass);
    if (choice.shortfall) line(behind_the_best(*choice.shortfall));
    if (is_batch_invariant(choice)) line("a token's result does not depend on the others");
    for (const PassedOver& other : not_chosen(choice, facts))
      line(other.reason.empty() ? fmt::format("or {}", other.provider)
                                : fmt::format("not {}: {}", other.provider, other.reason));
    std::vector<std::string> aliases;
    for (const KernelName& alias : usable_names(choice, facts))
      if (alias.name != alias.provider) aliases.push_back(fmt::format("{} = {}", alias.name, alias.provider));
    if (!aliases.empty()) line("names: " + join(aliases));
  }
  return out;
}

std::string summarize(const std::vector<Choice>& choices) {
  std::map<std::string, std::vector<std::string>> fields;
  for (const Choice& choice : choices) {
    if (choice.op.empty()) continue;
    const std::string field = field_of(choice.field);
    fields[choice.provider].push_back(
        choice.modules.empty() ? field : fmt::format("{} in {}", field, choice.modules));
  }
  std::vector<std::string> parts;
  for (const auto& [provider, names] : fields) parts.push_back(fmt::format("{} ({})", provider, join(names)));
  return join(parts);
}

Json explain_json(const BoundOps& ops, const HardwareFacts& facts) {
  Json::Array choices;
  for (const Choice& choice : ops.choices()) {
    Json::Array others, tilings;
    for (const PassedOver& other : not_chosen(choice, facts))
      others.push_back(Json::Object{{"kernel", other.provider},
                                    {"can_run", other.reason.empty()},
                                    {"reason", other.reason.empty() ? Json() : Json(other.reason)}});
    for (const std::string& tiling : choice.tilings) tilings.push_back(tiling);
    Json::Object names;
    for (const KernelName& name : usable_names(choice, facts)) names.emplace_back(name.name, name.provider);
    choices.push_back(
        Json::Object{{"field", choice.field},
                     {"op", choice.op.empty() ? Json() : Json(choice.op)},
                     {"kernel", choice.op.empty() ? Json() : Json(choice.provider)},
                     {"why", reason_of(choice)},
                     {"written", choice.written.empty() ? Json() : Json(choice.written)},
                     {"modules", choice.modules.empty() ? Json("*") : Json(choice.modules)},
                     {"others", others},
                     {"names", names},
                     {"tilings", tilings},
                     {"passes_of_others", Json::Array(choice.passes.begin(), choice.passes.end())},
                     {"shortfall", json_of(choice.shortfall)},
                     {"batch_invariant", is_batch_invariant(choice)}});
  }
  return Json::Object{{"hardware", facts.hardware}, {"device", facts.name}, {"choices", choices}};
}

void warn_of_shortfalls(const std::vector<Choice>& choices) {
  for (const Choice& choice : choices)
    if (choice.shortfall) log_warning_once(fmt::format("[kernels] {}", describe_shortfall(choice)));
}

void check_unchanged(const std::vector<ModuleKernel>& before, const std::vector<ModuleKernel>& now) {
  using Key = std::pair<std::string, std::string>;
  std::map<Key, std::pair<const ModuleKernel*, const ModuleKernel*>> all;
  for (const ModuleKernel& each : before) all[{each.module, each.op}].first = &each;
  for (const ModuleKernel& each : now) all[{each.module, each.op}].second = &each;
  const auto name = [](const ModuleKernel* kernel) {
    return kernel == nullptr ? std::string("none") : kernel->provider;
  };
  std::vector<std::string> lines;
  for (const auto& [key, kernels] : all) {
    const auto& [was, is] = kernels;
    if (was != nullptr && is != nullptr && *was == *is) continue;
    const bool same_name = name(was) == name(is);
    lines.push_back(fmt::format("{} of {} was bound to {} and is bound to {}{}", key.second,
                                key.first.empty() ? "the model" : key.first, name(was), name(is),
                                same_name ? " at another address" : ""));
  }
  if (lines.empty()) return;
  throw Error(
      fmt::format(
          "[kernels] {}, expected the kernels that were chosen when the model was built; this is a "
          "defect of Temper or of a plug-in, please report it: results since then are of other kernels",
          join(lines, "; ")),
      ErrorKind::kDefect);
}

std::string kernel_table() {
  std::vector<std::string> classes;
  std::string head = "| op | field |", rule = "|---|---|";
  for (const auto& [hardware, table] : hardware_tables().entries()) {
    classes.push_back(hardware);
    head += fmt::format(" {} |", hardware);
    rule += "---|";
  }
  std::string out = head + "\n" + rule + "\n";
  for (const auto& [name, op] : op_infos().entries()) {
    out += fmt::format("| {} | {}_implementation |", name, op.field);
    for (const std::string& hardware : classes) {
      std::vector<std::string> providers;
      for (const KernelInfo& kernel : op.kernels())
        if (kernel.hardware.empty() || kernel.hardware == hardware) providers.push_back(kernel.provider);
      out += fmt::format(" {} |", join(providers));
    }
    out += "\n";
  }
  return out;
}

}  // namespace temper::ops
