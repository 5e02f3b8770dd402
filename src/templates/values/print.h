#pragma once
#include <string>
#include <string_view>

#include "templates/values/value.h"

namespace temper::templates {

std::string to_text(const Value& value);   // Python's str()
std::string repr(const Value& value);      // Python's repr()
std::string describe(const Value& value);  // in messages: None or 'str object'

// Python's json.dumps. With indent lists and objects are spread over lines.
struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool spread = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace temper::templates
