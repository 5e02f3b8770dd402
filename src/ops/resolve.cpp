#include "ops/resolve.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"

namespace temper::ops {
namespace {

constexpr std::string_view kSuffix = "_implementation";

std::string label_of(std::string_view hardware) {
  const HardwareTable* table = hardware_tables().find(hardware);
  return table == nullptr ? std::string(hardware) : table->label;
}

std::vector<KernelInfo> kernels_of(const std::string& field) {
  for (const auto& [name, op] : op_infos().entries())
    if (op.field == field) return op.kernels();
  return {};
}

// Whether a kernel is registered that this name of the hardware's table means.
bool is_backed(const NameQuery& query, const KernelName& name) {
  const std::vector<KernelInfo> kernels = kernels_of(query.field);
  return std::any_of(kernels.begin(), kernels.end(), [&](const KernelInfo& kernel) {
    return kernel.provider == name.provider && kernel.hardware == query.facts.hardware;
  });
}

// Why a name that this hardware knows cannot be used on this machine. A package helps only where there is a
// kernel that it is for.
Refusal missing(const KernelName& name, const HardwareFacts& facts, bool backed) {
  if (!name.package.empty() && !facts.has_package(name.package))
    return backed
               ? fmt::format("needs the package '{}', which is not installed: install it or use eager",
                             name.package)
               : fmt::format("needs the package '{}', but this version has no kernel for it", name.package);
  if (name.min_capability > facts.compute_capability)
    return fmt::format("needs compute capability {}.{}, {} has {}.{}", name.min_capability / 10,
                       name.min_capability % 10, facts.name, facts.compute_capability / 10,
                       facts.compute_capability % 10);
  return std::nullopt;
}

const KernelName* find_name(std::string_view hardware, const std::string& field, const std::string& name) {
  const HardwareTable* table = hardware_tables().find(hardware);
  if (table == nullptr || !table->fields.contains(field)) return nullptr;
  for (const KernelName& known : table->fields.at(field).names)
    if (known.name == name) return &known;
  return nullptr;
}

// Other hardware on which the name means something: by a table, a family or a kernel.
std::string other_hardware(const NameQuery& query, const std::string& name) {
  for (const auto& added : family_table(query.family).added)
    if (added.field == query.field && added.name.name == name) return added.hardware;
  for (const auto& [hardware, table] : hardware_tables().entries()) {
    const auto& own = table.own_names;
    const bool named = find_name(hardware, query.field, name) != nullptr ||
                       std::find(own.begin(), own.end(), name) != own.end();
    if (hardware != query.facts.hardware && named) return hardware;
  }
  for (const KernelInfo& kernel : kernels_of(query.field))
    if (kernel.provider == name && !kernel.hardware.empty()) return kernel.hardware;
  return "";
}

[[noreturn]] void refuse(const NameQuery& query, const std::string& name, const std::string& why) {
  fail("[{}] {}{}={} {}. Set it to one of [{}]", place_of(query.pattern), query.field, kSuffix, name, why,
       join(possible_names(query)));
}

// Whether kernels that no table names may be written.
bool is_open(const NameQuery& query) {
  const HardwareTable& table = hardware_table(query.facts.hardware);
  const auto field = table.fields.find(query.field);
  return !table.strict || (field != table.fields.end() && field->second.open);
}

}  // namespace

std::string place_of(const std::string& pattern) {
  return "model.ops_implementation" + (pattern.empty() ? "" : fmt::format(".overrides.'{}'", pattern));
}

Refusal not_by_default(const NameQuery& query, const std::string& provider, const FamilyTable::Added* added) {
  if (provider == kEager) return std::nullopt;
  if (added != nullptr) return missing(added->name, query.facts, added->kernel != nullptr);
  const HardwareTable& table = hardware_table(query.facts.hardware);
  const auto field = table.fields.find(query.field);
  std::vector<std::string> names{provider};
  Refusal unusable;
  bool named = false, usable = false;
  if (field != table.fields.end())
    for (const KernelName& known : field->second.names) {
      if (known.provider != provider) continue;
      names.push_back(known.name);
      named = true;
      const Refusal why = missing(known, query.facts, is_backed(query, known));
      usable = usable || !why;
      unusable = why;
    }
  for (const std::string& name : names)
    if (const auto* disabled = family_table(query.family).find_disabled(query.field, name))
      return fmt::format("is disabled for {}: {}", query.family, disabled->reason);
  if (!named && !is_open(query)) return fmt::format("is not in the allow-list of {}", table.label);
  return named && !usable ? unusable : std::nullopt;
}

std::vector<std::string> possible_names(const NameQuery& query) {
  std::set<std::string> names{std::string(kEager)};
  const HardwareTable& table = hardware_table(query.facts.hardware);
  if (const auto field = table.fields.find(query.field); field != table.fields.end())
    for (const KernelName& known : field->second.names)
      if (is_backed(query, known) && !missing(known, query.facts, true) && known.deprecated.empty())
        names.insert(known.name);
  const FamilyTable& family = family_table(query.family);
  for (const auto& added : family.added)
    if (added.field == query.field && added.hardware == query.facts.hardware &&
        (added.kernel != nullptr || is_backed(query, added.name)) && !missing(added.name, query.facts, true))
      names.insert(added.name.name);
  if (is_open(query))
    for (const KernelInfo& kernel : kernels_of(query.field)) {
      const KernelName* known = find_name(query.facts.hardware, query.field, kernel.provider);
      const bool usable = known == nullptr || !missing(*known, query.facts, true);
      if (kernel.hardware == query.facts.hardware && usable) names.insert(kernel.provider);
    }
  std::erase_if(names,
                [&](const std::string& name) { return family.find_disabled(query.field, name) != nullptr; });
  return {names.begin(), names.end()};
}

ResolvedName resolve_name(const NameQuery& query, const std::string& name) {
  if (name == kEager) return {name};
  const FamilyTable& family = family_table(query.family);
  if (const auto* disabled = family.find_disabled(query.field, name))
    refuse(query, name, fmt::format("is explicitly disabled for {}: {}", query.family, disabled->reason));
  for (const auto& added : family.added) {
    if (added.field != query.field || added.name.name != name || added.hardware != query.facts.hardware)
      continue;
    const bool registered = added.kernel == nullptr && is_backed(query, added.name);
    if (const Refusal why = missing(added.name, query.facts, added.kernel != nullptr || registered))
      refuse(query, name, *why);
    return {added.name.provider, registered ? nullptr : &added};
  }
  if (const KernelName* known = find_name(query.facts.hardware, query.field, name)) {
    if (const Refusal why = missing(*known, query.facts, is_backed(query, *known))) refuse(query, name, *why);
    if (!known->deprecated.empty())
      // Names are resolved when the configuration is read and again when kernels are bound.
      log_warning_once(fmt::format("[model.ops_implementation] {}{}={} is deprecated; write {}", query.field,
                                   kSuffix, name, known->deprecated));
    return {known->provider};
  }
  if (!is_open(query))
    refuse(query, name, fmt::format("is not supported on {}", label_of(query.facts.hardware)));
  for (const KernelInfo& kernel : kernels_of(query.field))
    if (kernel.provider == name && kernel.hardware == query.facts.hardware) return {name};
  const std::string other = other_hardware(query, name);
  if (other == hardware::kCpu)
    refuse(query, name, fmt::format("runs on CPU only, this is {}", label_of(query.facts.hardware)));
  if (!other.empty()) refuse(query, name, fmt::format("requires {} but none is available", label_of(other)));
  refuse(
      query, name,
      fmt::format("is not a registered backend for {}", query.family.empty() ? query.field : query.family));
}

std::vector<std::string> all_fields() {
  std::set<std::string> fields;
  for (const auto& [hardware, table] : hardware_tables().entries())
    for (const auto& [field, names] : table.fields) fields.insert(field);
  for (const auto& [name, op] : op_infos().entries()) fields.emplace(op.field);
  return {fields.begin(), fields.end()};
}

bool has_op(const std::string& field) {
  const auto& ops = op_infos().entries();
  return std::any_of(ops.begin(), ops.end(), [&](const auto& entry) { return entry.value.field == field; });
}

std::vector<std::string> unread_fields() {
  std::vector<std::string> fields = all_fields();
  std::erase_if(fields, has_op);
  return fields;
}

namespace {

std::string without_suffix(const std::string& key) {
  return key.ends_with(kSuffix) ? key.substr(0, key.size() - kSuffix.size()) : key;
}

}  // namespace

std::string successor_of(const std::string& key) {
  return without_suffix(key) == "decode_attention" ? "paged_attention" : "";
}

std::string field_of(const std::string& key) {
  const std::vector<std::string> fields = all_fields();
  const std::string field = without_suffix(key);
  if (const std::string now = successor_of(key); !now.empty())
    fail(
        "[model.ops_implementation] {} is gone: {}{} chooses for generation, too. Write that, or leave it "
        "out",
        key, now, kSuffix);
  if (std::find(fields.begin(), fields.end(), field) != fields.end()) return field;
  const std::string nearest = nearest_name(field, fields);
  fail("[model.ops_implementation] unknown field '{}'{}; known are [{}]", key,
       nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest), join(fields));
}

std::string suggested_block(const HardwareFacts& facts, const std::string& family) {
  const HardwareTable& table = hardware_table(facts.hardware);
  const auto& must = table.must_be_written;
  std::string block = "model:\n  ops_implementation:\n";
  for (const auto& [field, known] : table.fields) {
    const auto suggested = table.suggested.find(field);
    const bool is_suggested = suggested != table.suggested.end();
    if (!is_suggested && table.strict && !table.suggested.empty()) continue;
    const bool is_read = has_op(field);
    if (!is_read && std::find(must.begin(), must.end(), field) == must.end()) continue;
    const std::vector<std::string> possible = possible_names({field, facts, family});
    const auto can_run = [&](const std::string& name) {
      return std::find(possible.begin(), possible.end(), name) != possible.end();
    };
    const auto best = std::find_if(known.names.begin(), known.names.end(),
                                   [&](const KernelName& name) { return can_run(name.name); });
    std::string value = best == known.names.end() ? std::string(kEager) : best->name;
    if (is_suggested && can_run(suggested->second)) value = suggested->second;
    block += fmt::format("    {}{}: {}{}\n", field, kSuffix, value,
                         is_read ? "" : "  # no op of this version reads it");
  }
  return block;
}

OpsConfig normalized(const OpsConfig& config) {
  const auto fields = [](const FieldValues& values, const std::string& pattern) {
    FieldValues normal;
    for (const auto& [key, name] : values) {
      if (name.empty())
        fail("[{}] {} is empty; write a name, or leave the field out", place_of(pattern), key);
      if (!normal.emplace(field_of(key), name).second)
        fail("[{}] {} is written twice, with and without '{}'", place_of(pattern), field_of(key), kSuffix);
    }
    return normal;
  };
  OpsConfig normal = config;
  normal.written = fields(config.written, "");
  for (auto& [pattern, values] : normal.overrides) {
    values = fields(values, pattern);
    if (values.empty()) fail("[{}] the override sets nothing", place_of(pattern));
  }
  return normal;
}

void check_ops_config(const OpsConfig& config, const HardwareFacts& facts) {
  const HardwareTable& table = hardware_table(facts.hardware);
  const OpsConfig normal = normalized(config);
  const auto check = [&](const FieldValues& values, const std::string& pattern) {
    for (const auto& [field, name] : values) {
      const NameQuery query{field, facts, "", pattern};
      // A family may know more names, but none gets hardware or packages that are not there.
      const bool known =
          find_name(facts.hardware, field, name) != nullptr || !other_hardware(query, name).empty();
      if (known || (table.strict && !is_open(query))) resolve_name(query, name);
    }
  };
  check(normal.written, "");
  for (const auto& [pattern, values] : normal.overrides) check(values, pattern);
  if (!config.fallback.empty()) return;
  std::vector<std::string> absent;
  for (const std::string& field : table.must_be_written)
    if (!normal.written.contains(field)) absent.push_back(field + std::string(kSuffix));
  if (absent.empty()) return;
  fail("[model.ops_implementation] on {} every field must be written; missing are [{}]. For example:\n{}",
       table.label, join(absent), suggested_block(facts));
}

}  // namespace temper::ops
