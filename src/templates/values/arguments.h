#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "templates/values/value.h"

namespace temper::templates {

// What stands in the parentheses of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  const Value* find(std::string_view name) const;  // among the named ones
};

// The arguments of a built-in, bound to its parameters' names as Python does; too many, unknown and missing
// ones are Errors that name `what`.
class Bound {
 public:
  Bound(const Arguments& arguments, std::string_view what, std::initializer_list<std::string_view> names,
        size_t required = 0);
  const Value* get(size_t index) const { return values_[index]; }  // null when not given
  const Value& operator[](size_t index) const { return *values_[index]; }
  // A given argument as its type, or the default; None counts as not given.
  int64_t integer(size_t index, int64_t otherwise) const;
  bool truth(size_t index, bool otherwise) const;
  std::string text(size_t index, std::string_view otherwise) const;

 private:
  std::string what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace temper::templates
