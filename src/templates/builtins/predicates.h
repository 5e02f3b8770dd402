#pragma once
#include <string_view>

#include "templates/values/arguments.h"
#include "templates/values/value.h"

namespace temper::templates {

// subject is name(arguments); Jinja calls them tests.
using Predicate = bool (*)(const Value& subject, const Arguments& arguments);
Predicate find_predicate(std::string_view name);   // null when there is none
Predicate predicate_named(std::string_view name);  // an Error when there is none

}  // namespace temper::templates
