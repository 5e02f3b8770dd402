#include <algorithm>
#include <span>

#include "base/error.h"
#include "templates/builtins/filters.h"
#include "templates/builtins/methods.h"
#include "templates/text/unicode.h"
#include "templates/values/limits.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

Value ignore_case(const Value& value) { return value.is_string() ? Value(lower(value.text())) : value; }

// What to compare items by: an attribute, without case unless asked for.
Getter key_getter(const Value* attribute, bool case_sensitive) {
  Getter get = attribute_getter(attribute);
  if (case_sensitive) return get;
  return [get](const Value& item) { return ignore_case(get(item)); };
}

List sorted(List items, const Getter& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return reverse ? less_than(b.first, a.first) : less_than(a.first, b.first);
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return items;
}

Value list(const Value& subject, const Arguments&) { return Value::list(items_of(subject)); }

Value first(const Value& subject, const Arguments&) {
  List items = items_of(subject);
  if (items.empty()) return Undefined{"No first item, sequence was empty."};
  return items.front();
}

Value last(const Value& subject, const Arguments&) {
  if (subject.is(Value::Kind::kGenerator)) fail("'generator' object is not reversible");
  List items = items_of(subject);
  if (items.empty()) return Undefined{"No last item, sequence was empty."};
  return items.back();
}

Value length(const Value& subject, const Arguments&) { return length_of(subject); }

Value join(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'join'", {"d", "attribute"});
  const Getter get = attribute_getter(args.get(1));
  JoinedText joined(args.get(0) ? args[0] : Value(""));
  for (const Value& item : items_of(subject)) joined.add(get(item));
  return joined.take();
}

Value reverse(const Value& subject, const Arguments&) {
  if (subject.is_string()) return get_slice(subject, None(), None(), -1);
  List items = items_of(subject);
  std::reverse(items.begin(), items.end());
  const bool read_once = subject.is(Value::Kind::kGenerator);
  return read_once ? Value::list(std::move(items)) : Value::generator(std::move(items));
}

Value sort(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'sort'", {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = args.truth(1, false);
  std::vector<Getter> keys;  // "a,b" sorts by both
  if (args.get(2) && args[2].is_string()) {
    std::string_view rest = args[2].text();
    while (true) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const Value part(rest.substr(0, comma));
      keys.push_back(key_getter(&part, case_sensitive));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    keys.push_back(key_getter(args.get(2), case_sensitive));
  }
  const Getter key = [keys](const Value& item) {  // a list: what is equal need not be comparable
    List values;
    for (const Getter& get : keys) values.push_back(get(item));
    return Value::list(std::move(values));
  };
  return Value::list(sorted(items_of(subject), key, args.truth(0, false)));
}

Value unique(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'unique'", {"case_sensitive", "attribute"});
  const Getter key = key_getter(args.get(1), args.truth(0, false));
  List seen, kept;
  for (const Value& item : items_of(subject)) {
    const Value own = key(item);
    if (own.is_dict() || own.is(Value::Kind::kList)) fail("unhashable type: '{}'", own.type_name());
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equals(own, other); }))
      continue;
    seen.push_back(own);
    kept.push_back(item);
  }
  return Value::generator(std::move(kept));
}

template <bool largest>
Value extreme(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, largest ? "filter 'max'" : "filter 'min'", {"case_sensitive", "attribute"});
  const Getter key = key_getter(args.get(1), args.truth(0, false));
  const List items = items_of(subject);
  if (items.empty()) return Undefined{"No aggregated item, sequence was empty."};
  const Value* best = &items[0];
  for (const Value& item : std::span(items).subspan(1))
    if (largest ? less_than(key(*best), key(item)) : less_than(key(item), key(*best))) best = &item;
  return *best;
}

Value sum(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'sum'", {"attribute", "start"});
  const Getter get = attribute_getter(args.get(0));
  Value total = args.get(1) ? args[1] : Value(0);
  if (total.is_string()) fail("sum() can't sum strings; use join");
  for (const Value& item : items_of(subject)) total = arithmetic("+", total, get(item));
  return total;
}

Value items(const Value& subject, const Arguments& arguments) {
  if (subject.is_undefined()) return Value::generator({});
  if (!subject.is_dict()) fail("Can only get item pairs from a mapping.");
  return Value::generator(items_of(find_method(subject, "items")->function().call(arguments)));
}

Value dictsort(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'dictsort'", {"case_sensitive", "by", "reverse"});
  const std::string by = args.text(1, "key");
  if (by != "key" && by != "value") fail("filter 'dictsort': by must be 'key' or 'value', found '{}'", by);
  if (!subject.is_dict()) fail("filter 'dictsort' needs a dict, found {}", subject.type_name());
  const Value position(by == "key" ? 0 : 1);
  return Value::list(sorted(items_of(items(subject, {})), key_getter(&position, args.truth(0, false)),
                            args.truth(2, false)));
}

Value batch(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'batch'", {"linecount", "fill_with"}, 1);
  const auto size = static_cast<size_t>(std::max<int64_t>(args.integer(0, 1), 1));
  List batches, batch;
  for (const Value& item : items_of(subject)) {
    if (batch.size() == size) batches.push_back(Value::list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty() && args.get(1) && !args[1].is_none()) {
    check_items(size, 1);
    batch.resize(size, args[1]);
  }
  if (!batch.empty()) batches.push_back(Value::list(std::move(batch)));
  return Value::generator(std::move(batches));
}

// `count` columns, the first ones longer by one where it does not come out even; fill_with evens them.
Value slice(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'slice'", {"slices", "fill_with"}, 1);
  const List all = items_of(subject);
  const int64_t count = args.integer(0, 1);
  if (count == 0) fail("integer division or modulo by zero");
  check_items(static_cast<size_t>(std::max<int64_t>(count, 0)), 1);
  const auto size = static_cast<int64_t>(all.size());
  const bool fill = args.get(1) && !args[1].is_none();
  List columns;
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = at + size / count + (i < size % count ? 1 : 0);
    List column(all.begin() + at, all.begin() + end);
    if (fill && i >= size % count) column.push_back(args[1]);
    columns.push_back(Value::list(std::move(column)));
    at = end;
  }
  return Value::generator(std::move(columns));
}

Value groupby(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'groupby'", {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = args.truth(2, false);
  const Getter get = attribute_getter(args.get(0), args.get(1));
  const Getter key = [&](const Value& item) { return case_sensitive ? get(item) : ignore_case(get(item)); };
  List groups, group;
  const auto close = [&] {
    if (group.empty()) return;
    const Value name = get(group[0]);
    groups.push_back(Value::tuple({name, Value::list(std::exchange(group, {}))}));
  };
  for (const Value& item : sorted(items_of(subject), key, false)) {
    if (!group.empty() && !equals(key(group[0]), key(item))) close();
    group.push_back(item);
  }
  close();
  return Value::list(std::move(groups));
}

constexpr std::pair<std::string_view, Filter> kListFilters[] = {
    {"list", list},      {"first", first},        {"last", last},         {"length", length},
    {"count", length},   {"join", join},          {"reverse", reverse},   {"sort", sort},
    {"unique", unique},  {"min", extreme<false>}, {"max", extreme<true>}, {"sum", sum},
    {"items", items},    {"dictsort", dictsort},  {"batch", batch},       {"slice", slice},
    {"groupby", groupby}};

}  // namespace

Filter find_list_filter(std::string_view name) {
  for (const auto& [known, filter] : kListFilters)
    if (known == name) return filter;
  return nullptr;
}

}  // namespace temper::templates
