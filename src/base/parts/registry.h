#pragma once
#include <algorithm>
#include <concepts>
#include <list>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace temper {

// Named values in registration order: the same door for kernels, models and optimizers. A value stays where
// it is, whatever is registered after it.
template <class Value>
class Registry {
 public:
  struct Entry {
    std::string name;
    Value value;
  };

  // The same name twice is a defect, unless the values can be compared and are equal.
  void add(std::string_view name, Value value) {
    if (const Value* known = find(name)) {
      bool same = false;
      if constexpr (std::equality_comparable<Value>) same = *known == value;
      invariant(same, fmt::format("registered twice, with different content: {}", name));
      return;
    }
    entries_.push_back({std::string(name), std::move(value)});
  }

  // The same, in front of an entry that is there; at the end when it is not.
  void add_before(std::string_view next, std::string_view name, Value value) {
    const size_t before = entries_.size();
    add(name, std::move(value));
    const auto place = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.name == next; });
    if (entries_.size() > before) entries_.splice(place, entries_, std::prev(entries_.end()));
  }

  const Value* find(std::string_view name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return &entry.value;
    return nullptr;
  }

  Value* find(std::string_view name) { return const_cast<Value*>(std::as_const(*this).find(name)); }

  const std::list<Entry>& entries() const { return entries_; }

 private:
  std::list<Entry> entries_;
};

// The one registry of `Value`s in the process.
template <class Value>
Registry<Value>& registry() {
  static Registry<Value> instance;
  return instance;
}

}  // namespace temper
