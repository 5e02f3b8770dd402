#include "templates/values/operators.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/values/limits.h"
#include "templates/values/loop.h"
#include "templates/values/traced_text.h"

namespace temper::templates {
namespace {

using ValueKind = Value::Kind;

// Keys and pairs compare as sets.
bool same_sets(const Value& a, const Value& b) {
  if (a.items().size() != b.items().size() || a.type_name() == "dict_values") return &a.view() == &b.view();
  return std::all_of(a.items().begin(), a.items().end(),
                     [&](const Value& item) { return contains(b, item); });
}

bool is_sequence(const Value& value) { return value.is(ValueKind::kList) || value.is(ValueKind::kTuple); }

bool same_numbers(const Value& a, const Value& b) {
  return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
}

bool same_entries(const Dict& a, const Value& b) {
  if (a.size() != b.entries().size()) return false;
  return std::all_of(a.begin(), a.end(), [&](const auto& entry) {
    return std::any_of(b.entries().begin(), b.entries().end(), [&](const auto& other) {
      return equals(entry.first, other.first) && equals(entry.second, other.second);
    });
  });
}

}  // namespace

void require_defined(const Value& value) {
  if (value.is_undefined()) fail("{}", value.message());
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
    case ValueKind::kInt:
      return value.integer() != 0;
    case ValueKind::kFloat:
      return value.number() != 0;
    case ValueKind::kString:
      return !value.text().empty();
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return !value.items().empty();
    case ValueKind::kDict:
      return !value.entries().empty();
    default:
      return true;
  }
}

bool equals(const Value& a, const Value& b) {
  spend();
  if (a.is_number() && b.is_number()) return same_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return true;
    case ValueKind::kString:
      spend(a.text().size() == b.text().size() ? a.text().size() : 0);
      return a.text() == b.text();
    case ValueKind::kList:
    case ValueKind::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equals);
    case ValueKind::kView:
      if (a.is_range() != b.is_range()) return false;
      if (a.is_range())
        return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equals);
      return same_sets(a, b);
    case ValueKind::kDict:
      return same_entries(a.entries(), b);
    case ValueKind::kNamespace:
      return &a.names() == &b.names();
    case ValueKind::kLoop:
      return &a.loop() == &b.loop();
    case ValueKind::kFunction:
      return &a.function() == &b.function();
    default:
      return &a.items() == &b.items();
  }
}

bool less_than(const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  spend(a.is_string() ? a.text().size() : 0);
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_string() && b.is_string()) return a.text() < b.text();
  if (is_sequence(a) && a.kind() == b.kind()) {  // the first pair that is not equal decides
    const auto [left, right] =
        std::mismatch(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equals);
    if (right == b.items().end()) return false;
    return left == a.items().end() || less_than(*left, *right);
  }
  fail("'<' not supported between instances of '{}' and '{}'", a.type_name(), b.type_name());
}

size_t find_text(std::string_view text, std::string_view part) {
  if (part.empty()) return 0;
  const void* found = memmem(text.data(), text.size(), part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

// Short parts from behind; long ones, where that could take the product of both sizes, in reversed copies.
size_t rfind_text(std::string_view text, std::string_view part) {
  if (part.size() <= 64) return text.rfind(part);
  if (part.size() > text.size()) return std::string_view::npos;
  const std::string backwards(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const size_t found = find_text(backwards, wanted);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

bool contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case ValueKind::kUndefined:
      return false;
    case ValueKind::kString:
      if (!item.is_string()) fail("'in <string>' requires string as left operand, not {}", item.type_name());
      spend(container.text().size());
      return find_text(container.text(), item.text()) != std::string::npos;
    case ValueKind::kDict:
      if (item.is_dict() || item.is(ValueKind::kList)) fail("unhashable type: '{}'", item.type_name());
      return std::any_of(container.entries().begin(), container.entries().end(),
                         [&](const auto& entry) { return equals(entry.first, item); });
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
    case ValueKind::kGenerator: {
      const List items = items_of(container);
      return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equals(other, item); });
    }
    default:
      fail("argument of type '{}' is not iterable", container.type_name());
  }
}

List items_of(const Value& value) {
  const auto copied = [](size_t count) {
    spend(count);
    spend_memory(count * sizeof(Value));
  };
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return {};
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      copied(value.items().size());
      return value.items();
    case ValueKind::kGenerator:
      return value.take_generator();
    case ValueKind::kDict: {
      copied(value.entries().size());
      List keys;
      for (const auto& entry : value.entries()) keys.push_back(entry.first);
      return keys;
    }
    case ValueKind::kString: {
      List characters;
      for (std::string_view rest = value.text(); !rest.empty();) {
        const size_t size = next_utf8(rest).size;
        characters.push_back(part_of(value, rest.substr(0, size)));
        check_items(characters.size(), 1);
        rest.remove_prefix(size);
      }
      return characters;
    }
    default:
      fail("'{}' object is not iterable", value.type_name());
  }
}

size_t length_of(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return value.items().size();
    case ValueKind::kDict:
      return value.entries().size();
    case ValueKind::kString: {
      spend(value.text().size());
      size_t count = 0;
      for (const char c : value.text()) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      return count;
    }
    case ValueKind::kLoop:
      return static_cast<size_t>(value.loop().length());
    default:
      fail("object of type '{}' has no len()", value.type_name());
  }
}

}  // namespace temper::templates
