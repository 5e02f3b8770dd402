#include "templates/run/globals.h"

#include <ctime>

#include "base/error.h"
#include "templates/values/arguments.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

constexpr int64_t kLongestRange = 100000;

Value range(const Arguments& arguments) {
  const Bound args(arguments, "range", {"start", "stop", "step"}, 1);
  const bool only_stop = args.get(1) == nullptr;
  const int64_t start = only_stop ? 0 : args.integer(0, 0), stop = args.integer(only_stop ? 0 : 1, 0);
  const int64_t step = args.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  List items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kLongestRange)
      fail("a range has at most {} items", kLongestRange);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const std::string text = step == 1 ? fmt::format("range({}, {})", start, stop)
                                     : fmt::format("range({}, {}, {})", start, stop, step);
  return Value::view(std::move(items), "range", text);
}

// joiner(", ") gives nothing the first time, then the separator.
Value joiner(const Arguments& arguments) {
  const Bound args(arguments, "joiner", {"sep"});
  return Function{"joiner", [separator = args.get(0) ? args[0] : Value(", "),
                             used = std::make_shared<bool>(false)](const Arguments& none) {
                    const Bound nothing(none, "a joiner", {});
                    return std::exchange(*used, true) ? separator : Value("");
                  }};
}

Dict entries_of(const Arguments& arguments, std::string_view what) {
  Dict entries;
  if (arguments.positional.size() > 1) fail("{} takes at most one positional argument", what);
  const auto put = [&](const Value& key, const Value& value) {
    for (auto& entry : entries)
      if (equals(entry.first, key)) {
        entry.second = value;
        return;
      }
    entries.emplace_back(key, value);
  };
  for (const Value& source : arguments.positional) {
    if (source.is_dict()) {
      entries = source.entries();
      continue;
    }
    for (const Value& item : items_of(source)) {
      const List pair = items_of(item);
      if (pair.size() != 2) fail("{} needs pairs, found {} values", what, pair.size());
      put(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) put(name, value);
  return entries;
}

Value dict(const Arguments& arguments) { return Value::dict(entries_of(arguments, "dict")); }

Value raise_exception(const Arguments& arguments) {
  const Bound args(arguments, "raise_exception", {"message"}, 1);
  fail("{}", to_text(args[0]));
}

Value strftime_now(const Arguments& arguments) {
  const Bound args(arguments, "strftime_now", {"format"}, 1);
  const std::string format = args.text(0, "");
  if (format.size() > 200) fail("strftime_now: the format has more than 200 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return std::string(buffer, size);
}

Value make_namespace(const Arguments& arguments, std::deque<Namespace>& namespaces) {
  Namespace names;
  for (const auto& [key, value] : entries_of(arguments, "namespace"))
    names.entries.emplace_back(to_text(key), value);
  namespaces.push_back(std::move(names));
  return &namespaces.back();
}

// Has next(), reset() and current.
Value make_cycler(const Arguments& arguments, std::deque<Namespace>& namespaces) {
  const List items = arguments.positional;
  if (items.empty()) fail("at least one item has to be provided");
  namespaces.push_back({{{"current", items[0]}}});
  Namespace* names = &namespaces.back();
  const auto at = std::make_shared<size_t>(0);
  const auto move_to = [=](size_t index) {
    *at = index % items.size();
    names->entries[0].second = items[*at];
  };
  names->entries.emplace_back("next", Function{"next", [=](const Arguments&) {
                                                 const Value current = items[*at];
                                                 move_to(*at + 1);
                                                 return current;
                                               }});
  names->entries.emplace_back("reset", Function{"reset", [=](const Arguments&) {
                                                  move_to(0);
                                                  return Value(None());
                                                }});
  return names;
}

}  // namespace

void add_globals(Scopes& scopes, std::deque<Namespace>& namespaces) {
  scopes.set("range", Function{"range", range});
  scopes.set("dict", Function{"dict", dict});
  scopes.set("cycler", Function{"cycler", [&namespaces](const Arguments& arguments) {
                                  return make_cycler(arguments, namespaces);
                                }});
  scopes.set("joiner", Function{"joiner", joiner});
  scopes.set("namespace", Function{"namespace", [&namespaces](const Arguments& arguments) {
                                     return make_namespace(arguments, namespaces);
                                   }});
  scopes.set("raise_exception", Function{"raise_exception", raise_exception});
  scopes.set("strftime_now", Function{"strftime_now", strftime_now});
}

}  // namespace temper::templates
