#include "ops/hardware_table.h"

#include "base/text.h"
#include "ops/op_info.h"

namespace temper::ops {

const HardwareTable& hardware_table(std::string_view hardware) {
  const HardwareTable* table = hardware_tables().find(hardware);
  if (table != nullptr) return *table;
  std::vector<std::string> names;
  for (const auto& entry : hardware_tables().entries()) names.push_back(entry.name);
  fail("no table of kernels for hardware '{}'; known are [{}], plug-ins can bring more", hardware,
       join(names));
}

void add_names(std::string_view field, const OpNames& names) {
  const auto names_on = [&](std::string_view hardware) {
    if (hardware == hardware::kCpu) return names.cpu;
    if (hardware == hardware::kGpu) return names.gpu;
    return hardware == hardware::kNpu ? names.npu : FieldNames{};
  };
  for (const auto& [hardware, table] : hardware_tables().entries())
    hardware_tables().find(hardware)->fields.emplace(field, names_on(hardware));
}

void check_hardware_tables(const Registry<HardwareTable>& tables, const Registry<OpInfo>& ops) {
  std::vector<std::string> missing;
  for (const auto& [hardware, table] : tables.entries())
    for (const auto& [name, op] : ops.entries())
      if (!table.fields.contains(std::string(op.field)))
        missing.push_back(fmt::format("{}: {}", hardware, op.field));
  const HardwareTable* cpu = tables.find(hardware::kCpu);  // which knows every field
  for (const auto& [hardware, table] : tables.entries())
    for (const auto& [field, names] : table.fields)
      if (!cpu->fields.contains(field))
        fail("hardware '{}' has names for '{}', which is not a field", hardware, field);
  if (!missing.empty()) fail("allow-list missing entries for registered ops: [{}]", join(missing));
}

}  // namespace temper::ops
