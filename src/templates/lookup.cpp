#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/limits.h"
#include "templates/loop.h"
#include "templates/markup.h"
#include "templates/methods.h"
#include "templates/operators.h"
#include "templates/traced_text.h"

namespace temper::templates {
namespace {

using ValueKind = Value::Kind;

// What would change a value of the template's caller is out of reach, and so is Python's machinery.
constexpr std::array<std::string_view, 14> kUnsafe = {
    "append", "extend",  "insert",     "remove", "sort", "reverse",  "clear",
    "pop",    "popitem", "setdefault", "update", "mro",  "fromkeys", "__class__"};

std::string describe(const Value& value) {
  if (value.is_none()) return "None";
  return fmt::format("'{} object'", value.type_name());
}

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
    spend(value.entries().size());
    for (const auto& [name, item] : value.entries())
      if (equals(name, key)) return item;
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

// The positions that start:stop:step takes of `size`, as Python counts them.
std::vector<size_t> slice_positions(int64_t size, const Value& start, const Value& stop, const Value& step) {
  const auto bound = [&](const Value& value, int64_t otherwise, int64_t low, int64_t high) {
    if (value.is_none()) return otherwise;
    require_defined(value);
    if (!value.is_integer()) fail("slice indices must be integers or None, found {}", value.type_name());
    const int64_t index = value.integer() < 0 ? value.integer() + size : value.integer();
    return std::clamp(index, low, high);
  };
  if (!step.is_none() && !step.is_integer())
    fail("slice indices must be integers or None, found {}", step.type_name());
  const int64_t width = step.is_none() ? 1 : step.integer();
  if (width == 0) fail("slice step cannot be zero");
  const bool forward = width > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? size : size - 1;
  const int64_t from = bound(start, forward ? 0 : size - 1, low, high);
  const int64_t to = bound(stop, forward ? size : -1, low, high);
  std::vector<size_t> positions;
  for (int64_t i = from; forward ? i < to : i > to;) {
    positions.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, width, &i)) break;
  }
  return positions;
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

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  const auto positions = [&](size_t size) {
    return slice_positions(static_cast<int64_t>(size), start, stop, step);
  };
  if (value.is_string()) {
    std::vector<std::string_view> characters;
    for (std::string_view rest = value.text(); !rest.empty(); rest.remove_prefix(characters.back().size()))
      characters.push_back(rest.substr(0, next_utf8(rest).size));
    TracedText out;
    for (const size_t i : positions(characters.size())) out.add_part(value, characters[i]);
    return out.take(value.is_markup());
  }
  if (value.is_range()) fail("slices of a range are not supported; add |list before the slice");
  if (!value.is(ValueKind::kList) && !value.is(ValueKind::kTuple)) fail("{} has no slices", describe(value));
  List out;
  for (const size_t i : positions(value.items().size())) out.push_back(value.items()[i]);
  return value.is(ValueKind::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

}  // namespace temper::templates
