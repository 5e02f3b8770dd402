#pragma once
#include "ops/family_table.h"
#include "ops/op_info.h"
#include "ops/ops_config.h"

// From what a configuration says to a kernel's provider, before any kernel is asked whether it can run.
namespace temper::ops {

// Who asks: one field, on some hardware, for a family of models ("" for none).
struct NameQuery {
  std::string field;
  const HardwareFacts& facts;
  std::string family = {};
  std::string pattern = {};  // of an override, for messages
};

// Whether this version has an op whose kernel the field chooses. Tables also know fields of ops to come: what
// is written there is checked, reported, and read by nothing.
bool has_op(const std::string& field);
// The fields without one, sorted.
std::vector<std::string> unread_fields();
std::string place_of(const std::string& pattern);  // "model.ops_implementation.overrides.'layers.0.*'"

// Why a kernel may not be taken for a field that was left out, whatever it says of itself: the family
// disables it, strict hardware does not name it, or something that its name needs is missing.
Refusal not_by_default(const NameQuery& query, const std::string& provider,
                       const FamilyTable::Added* added = nullptr);

struct ResolvedName {
  std::string provider;
  const FamilyTable::Added* added = nullptr;  // the family's own kernel
};

// What `name` means. Throws when the name is disabled for the family, means other hardware, needs what
// is missing, or is not known; every message lists what could be written instead.
ResolvedName resolve_name(const NameQuery& query, const std::string& name);

// What may be written and can run, sorted, with `eager`: names behind which this hardware has a registered
// kernel, without what is disabled for the family.
std::vector<std::string> possible_names(const NameQuery& query);

// The fields that configurations may have: those of every table and op, sorted.
std::vector<std::string> all_fields();

// A field's name without "_implementation"; an unknown one is an error with the nearest, one that is gone an
// error with its successor.
std::string field_of(const std::string& key);
// The field in whose place another one came; empty: none did.
std::string successor_of(const std::string& key);

// The same with fields for keys, without "_implementation". Empty names, empty overrides and fields that are
// there twice are errors.
OpsConfig normalized(const OpsConfig& config);

// All that can be said without a model: fields, names, and on strict hardware fields that are missing (named
// all at once, with a block to paste).
void check_ops_config(const OpsConfig& config, const HardwareFacts& facts);

// The block of fields that a run on this hardware may start from, as YAML: names that can run, and fields
// that no op reads only where they must be written. Without what is disabled for the family ("" for none).
std::string suggested_block(const HardwareFacts& facts, const std::string& family = {});

}  // namespace temper::ops
