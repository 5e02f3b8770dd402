#pragma once
#include <functional>
#include <string_view>

#include "templates/values/arguments.h"
#include "templates/values/value.h"

namespace temper::templates {

// subject | name(arguments)
using Filter = Value (*)(const Value& subject, const Arguments& arguments);
Filter find_filter(std::string_view name);   // null when there is none
Filter filter_named(std::string_view name);  // an Error when there is none

// The tables behind it, one for each file.
Filter find_text_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
Filter find_select_filter(std::string_view name);

// Reads item.a.b.0 for a filter's `attribute` "a.b.0" (or a number); without attribute the item itself.
using Getter = std::function<Value(const Value&)>;
Getter attribute_getter(const Value* attribute, const Value* otherwise = nullptr);

}  // namespace temper::templates
