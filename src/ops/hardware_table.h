#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/parts/registry.h"
#include "device/facts.h"

// What the fields of ops_implementation may say on each class of hardware. Tables are data: the same name can
// mean different hardware in different fields ("triton"), and nothing is inferred from what a name needs.
namespace temper::ops {

// A name that a field knows, in addition to `eager`, which every field knows everywhere.
struct KernelName {
  std::string name;             // as users write it: "flash_attention_2", "fused_npu"
  std::string provider;         // the kernel that it means
  std::string package = {};     // that must be installed
  int min_capability = 0;       // of a GPU: 90 for 9.0
  std::string deprecated = {};  // what to write instead, for names on their way out

  bool operator==(const KernelName&) const = default;
};

struct FieldNames {
  std::vector<KernelName> names = {};
  bool open = false;  // on strict hardware: kernels that are registered under other names may be written too

  bool operator==(const FieldNames&) const = default;
};

struct HardwareTable {
  std::string label;                         // "Ascend NPU"
  std::map<std::string, FieldNames> fields;  // by field, without "_implementation"
  std::vector<std::string> own_names = {};   // mean this hardware in every field, named there or not
  bool strict = false;                       // names outside the table are refused before any model is read
  std::vector<std::string> must_be_written = {};      // fields without a default
  std::map<std::string, std::string> suggested = {};  // a block to paste: field, value

  bool operator==(const HardwareTable&) const = default;
};

// "cpu", "gpu" and "npu", with the fields that ops bring (register_op) and those of ops to come; plug-ins add
// theirs.
Registry<HardwareTable>& hardware_tables();
const HardwareTable& hardware_table(std::string_view hardware);  // an error when no one brought it

// Refuses to start when a table has no entry for the field of a registered op: "allow-list missing entries
// for registered ops: [gpu: rms_norm]".
struct OpInfo;
void check_hardware_tables(const Registry<HardwareTable>& tables, const Registry<OpInfo>& ops);

}  // namespace temper::ops
