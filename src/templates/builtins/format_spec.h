#pragma once
#include <string>
#include <string_view>

#include "templates/values/arguments.h"

namespace temper::templates {

// Python's format(value, spec): [[fill]align][sign][#][0][width][grouping][.precision][type].
std::string format_value(const Value& value, std::string_view spec);

// Python's text.format(…).
Value format_text(const Value& self, const Arguments& arguments);

}  // namespace temper::templates
