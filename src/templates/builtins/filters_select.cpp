// map, select and their kin: filters that take another filter or a test.
#include "base/error.h"
#include "templates/builtins/filters.h"
#include "templates/builtins/predicates.h"
#include "templates/values/operators.h"

namespace temper::templates {
namespace {

std::string name_of(const Value& value, std::string_view what) {
  if (!value.is_string()) fail("{} must be given by its name, found {}", what, value.type_name());
  return value.text();
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

// None and other values that are not true are no items.
List items_if_true(const Value& subject) { return is_true(subject) ? items_of(subject) : List(); }

Value map(const Value& subject, const Arguments& arguments) {
  List results;
  if (arguments.positional.empty()) {
    const Bound args(arguments, "filter 'map'", {"attribute", "default"});
    if (!args.get(0)) fail("map requires a filter argument");
    const Getter get = attribute_getter(args.get(0), args.get(1));
    for (const Value& item : items_if_true(subject)) results.push_back(get(item));
    return Value::generator(std::move(results));
  }
  const std::string name = name_of(arguments.positional[0], "map: the filter");
  const Filter filter = filter_named(name);
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : items_if_true(subject)) results.push_back(filter(item, rest));
  return Value::generator(std::move(results));
}

// Items, or an attribute of theirs, that a test (by default: is it true) accepts or rejects.
template <bool keep, bool by_attribute>
Value select(const Value& subject, const Arguments& arguments) {
  size_t used = 0;
  Getter get = attribute_getter(nullptr);
  if (by_attribute) {
    if (arguments.positional.empty()) fail("Missing parameter for attribute name");
    get = attribute_getter(&arguments.positional[used++]);
  }
  Predicate predicate = nullptr;
  if (used < arguments.positional.size()) {
    predicate = predicate_named(name_of(arguments.positional[used++], "select: the test"));
  }
  const Arguments rest = without_first(arguments, used);
  List kept;
  for (const Value& item : items_if_true(subject)) {
    const Value value = get(item);
    if ((predicate ? predicate(value, rest) : is_true(value)) == keep) kept.push_back(item);
  }
  return Value::generator(std::move(kept));
}

constexpr std::pair<std::string_view, Filter> kSelectFilters[] = {{"map", map},
                                                                  {"select", select<true, false>},
                                                                  {"reject", select<false, false>},
                                                                  {"selectattr", select<true, true>},
                                                                  {"rejectattr", select<false, true>}};

}  // namespace

Filter find_select_filter(std::string_view name) {
  for (const auto& [known, filter] : kSelectFilters)
    if (known == name) return filter;
  return nullptr;
}

}  // namespace temper::templates
