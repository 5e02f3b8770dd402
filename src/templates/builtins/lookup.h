#pragma once
#include <string_view>

#include "templates/values/value.h"

namespace temper::templates {

// value.name: methods first, then keys. value[key]: keys first, then attributes.
Value get_attribute(const Value& value, std::string_view name);
Value get_item(const Value& value, const Value& key);

}  // namespace temper::templates
