#pragma once
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
