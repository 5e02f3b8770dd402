#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "templates/arguments.h"
#include "templates/value.h"

namespace temper::templates {

// The method `name` of a str, list, tuple or dict, bound to its value.
std::optional<Value> find_method(const Value& value, std::string_view name);

using Method = Value (*)(const Value& self, const Arguments& arguments);
Method find_string_method(std::string_view name);  // null when there is none

// Shared with the filters.
enum class Side { kLeft, kRight, kBoth };
std::string strip(std::string_view text, const Value* characters,
                  Side side);  // white space without characters
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string pad(std::string_view text, int64_t width, std::string_view fill, Side text_side);

class JoinedText {
 public:
  explicit JoinedText(std::string separator) : separator_(std::move(separator)) {}
  void add(std::string_view part);
  std::string take() { return std::move(out_); }

 private:
  std::string separator_, out_;
  bool first_ = true;
};

}  // namespace temper::templates
