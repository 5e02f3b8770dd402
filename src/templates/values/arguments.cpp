#include "templates/values/arguments.h"

#include <algorithm>

#include "base/error.h"
#include "templates/values/operators.h"

namespace temper::templates {

const Value* Arguments::find(std::string_view name) const {
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

Bound::Bound(const Arguments& arguments, std::string_view what, std::initializer_list<std::string_view> names,
             size_t required)
    : what_(what), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names.size())
    fail("{} takes at most {} argument(s), found {}", what, names.size(), arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) fail("{} takes no argument '{}'", what, name);
    const Value*& slot = values_[static_cast<size_t>(found - names_.begin())];
    if (slot) fail("{} has two values for '{}'", what, name);
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) fail("{} needs the argument '{}'", what, names_[i]);
}

int64_t Bound::integer(size_t index, int64_t otherwise) const {
  const Value* value = values_[index];
  if (!value || value->is_none()) return otherwise;
  if (!value->is_integer())
    fail("{}: '{}' must be an int, found {}", what_, names_[index], value->type_name());
  return value->integer();
}

bool Bound::truth(size_t index, bool otherwise) const {
  return values_[index] ? is_true(*values_[index]) : otherwise;
}

std::string Bound::text(size_t index, std::string_view otherwise) const {
  const Value* value = values_[index];
  if (!value || value->is_none()) return std::string(otherwise);
  if (!value->is_string()) fail("{}: '{}' must be a str, found {}", what_, names_[index], value->type_name());
  return value->text();
}

}  // namespace temper::templates
