#pragma once
#include <string>
#include <vector>

#include "base/parts/registry.h"
#include "ops/hardware_table.h"

// What one family of models changes about the choice of its kernels. A family's table is read before the
// registry; what it adds does not exist for other families.
namespace temper::ops {

struct FamilyTable {
  struct Disabled {
    std::string field, name, reason;
    bool operator==(const Disabled&) const = default;
  };
  struct Added {
    std::string field;
    KernelName name;
    std::string hardware;
    // A Kernel<Op> that stays; null: the registered one of this provider, or known and not built yet.
    const void* kernel = nullptr;
    bool operator==(const Added&) const = default;
  };
  std::vector<Disabled> disabled = {};
  std::vector<Added> added = {};

  bool operator==(const FamilyTable&) const = default;
  const Disabled* find_disabled(std::string_view field, std::string_view name) const;
};

// By model_type; families without an entry change nothing.
Registry<FamilyTable>& family_tables();
const FamilyTable& family_table(std::string_view model_type);

}  // namespace temper::ops
