#include "templates/builtins/lookup.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/builtins/methods.h"
#include "templates/values/limits.h"
#include "templates/values/loop.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"
#include "templates/values/traced_text.h"

namespace temper::templates {
namespace {

using ValueKind = Value::Kind;

// What would change a value of the template's caller is out of reach, and so is Python's machinery.
constexpr std::array<std::string_view, 14> kUnsafe = {
    "append", "extend",  "insert",     "remove", "sort", "reverse",  "clear",
    "pop",    "popitem", "setdefault", "update", "mro",  "fromkeys", "__class__"};

Value missing(const Value& value, const Value& key) {
  if (key.is_string()) return Undefined{fmt::format("{} has no attribute '{}'", describe(value), key.text())};
  return Undefined{
      fmt::format("{} has no element {}", describe(value), key.is_integer() ? key.integer() : 0)};
}

bool unsafe(const Value& value, std::string_view name) {
  if (name.starts_with("__")) return true;
  const bool container = value.is(ValueKind::kList) || value.is_dict();
  return container && std::find(kUnsafe.begin(), kUnsafe.end(), name) != kUnsafe.end();
}

std::optional<Value> own_attribute(const Value& value, std::string_view name) {
  if (value.is(ValueKind::kLoop)) return value.loop().attribute(name);
  if (value.is(ValueKind::kNamespace)) {
    spend(value.names().entries.size());
    for (const auto& [key, item] : value.names().entries)
      if (key == name) return item;
    return std::nullopt;
  }
  if (unsafe(value, name))
    return Undefined{
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, value.type_name())};
  return find_method(value, name);
}

std::optional<Value> entry(const Value& value, const Value& key) {
  if (value.is_dict()) {
    const Dict& entries = value.entries();
    spend(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!equals(entries[i].first, key)) continue;
      value.see(i);
      return entries[i].second;
    }
    return std::nullopt;
  }
  if (!key.is_integer()) return std::nullopt;
  const bool sequence =
      value.is_string() || value.is(ValueKind::kList) || value.is(ValueKind::kTuple) || value.is_range();
  if (!sequence) return std::nullopt;
  const auto size = static_cast<int64_t>(length_of(value));
  const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
  if (index < 0 || index >= size) return std::nullopt;
  if (!value.is_string()) return value.items()[static_cast<size_t>(index)];
  spend(value.text().size());
  std::string_view rest = value.text();
  for (int64_t i = 0; i < index; ++i) rest.remove_prefix(next_utf8(rest).size);
  return part_of(value, rest.substr(0, next_utf8(rest).size));
}

}  // namespace

Value get_attribute(const Value& value, std::string_view name) {
  require_defined(value);
  if (auto found = own_attribute(value, name)) return *found;
  const Value key(name);
  if (auto found = entry(value, key)) return *found;
  return missing(value, key);
}

Value get_item(const Value& value, const Value& key) {
  require_defined(value);
  if (auto found = entry(value, key)) return *found;
  if (key.is_string())
    if (auto found = own_attribute(value, key.text())) return *found;
  return missing(value, key);
}

}  // namespace temper::templates
