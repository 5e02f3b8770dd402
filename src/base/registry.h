#pragma once
#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace temper {

// Named values in registration order: the same door for kernels, models and optimizers.
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
    add(name, std::move(value));
    const auto place = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.name == next; });
    if (place != entries_.end() && place + 1 < entries_.end())
      std::rotate(place, entries_.end() - 1, entries_.end());
  }

  const Value* find(std::string_view name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return &entry.value;
    return nullptr;
  }

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// The one registry of `Value`s in the process.
template <class Value>
Registry<Value>& registry() {
  static Registry<Value> instance;
  return instance;
}

}  // namespace temper
