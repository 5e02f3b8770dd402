#include "templates/builtins/methods.h"

#include <algorithm>

#include "base/error.h"
#include "templates/values/limits.h"
#include "templates/values/markup.h"
#include "templates/values/operators.h"

namespace temper::templates {
namespace {

struct Named {
  std::string_view name;
  Method call;
};

Value list_count(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "count", {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.items()) count += equals(item, args[0]);
  return count;
}

Value list_index(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "index", {"value"}, 1);
  for (size_t i = 0; i < self.items().size(); ++i)
    if (equals(self.items()[i], args[0])) return i;
  fail("the value is not in the list");
}

Value copy(const Value& self, const Arguments&) { return self; }

Value dict_get(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "get", {"key", "default"}, 1);
  const Dict& entries = self.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!equals(entries[i].first, args[0])) continue;
    self.see(i);
    return entries[i].second;
  }
  return args.get(1) ? args[1] : Value(None());
}

Value dict_items(const Value& self, const Arguments&) {
  List items;
  for (const auto& [key, value] : self.entries()) items.push_back(Value::tuple({key, value}));
  return Value::view(std::move(items), "dict_items");
}

Value dict_keys(const Value& self, const Arguments&) { return Value::view(items_of(self), "dict_keys"); }

Value dict_values(const Value& self, const Arguments&) {
  List values;
  for (const auto& entry : self.entries()) values.push_back(entry.second);
  return Value::view(std::move(values), "dict_values");
}

constexpr Named kSequenceMethods[] = {{"count", list_count}, {"index", list_index}};
constexpr Named kListMethods[] = {{"count", list_count}, {"index", list_index}, {"copy", copy}};
constexpr Named kDictMethods[] = {
    {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"copy", copy}};

template <size_t Count>
Method find_in(const Named (&methods)[Count], std::string_view name) {
  for (const Named& method : methods)
    if (method.name == name) return method.call;
  return nullptr;
}

// What is put into markup is escaped, and what comes out is markup again.
Value call_on_markup(const Value& value, std::string_view name, Method method, const Arguments& arguments) {
  static constexpr std::string_view kPlain[] = {"count",  "find",       "index",    "rfind",
                                                "rindex", "startswith", "endswith", "split",
                                                "rsplit", "splitlines", "format"};
  if (std::find(std::begin(kPlain), std::end(kPlain), name) != std::end(kPlain))
    return markup_like(value, method(value, arguments));
  Arguments safe = arguments;
  for (Value& argument : safe.positional) {
    if (argument.is_string()) argument = escaped(argument);
    if (name != "join" || argument.is_string()) continue;
    List items;
    for (const Value& item : items_of(argument)) items.push_back(escaped(item));
    argument = Value::list(std::move(items));
  }
  return markup_like(value, method(value, safe));
}

}  // namespace

std::optional<Value> find_method(const Value& value, std::string_view name) {
  Method method = nullptr;
  if (value.is_string())
    method = find_string_method(name);
  else if (value.is(Value::Kind::kList))
    method = find_in(kListMethods, name);
  else if (value.is(Value::Kind::kTuple) || value.is_range())
    method = find_in(kSequenceMethods, name);
  else if (value.is_dict())
    method = find_in(kDictMethods, name);
  if (!method) return std::nullopt;
  return Function{std::string(name), [value, method, name = std::string(name)](const Arguments& arguments) {
                    spend(value.is_string() ? value.text().size() : 0);
                    return value.is_markup() ? call_on_markup(value, name, method, arguments)
                                             : method(value, arguments);
                  }};
}

}  // namespace temper::templates
