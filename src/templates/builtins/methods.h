#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "templates/values/arguments.h"
#include "templates/values/traced_text.h"
#include "templates/values/value.h"

namespace temper::templates {

// The method `name` of a str, list, tuple or dict, bound to its value.
std::optional<Value> find_method(const Value& value, std::string_view name);

using Method = Value (*)(const Value& self, const Arguments& arguments);
Method find_string_method(std::string_view name);  // null when there is none

// Shared with the filters.
enum class Side { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, const Value* characters,
                       Side side);  // white space without characters
Value replace(const Value& subject, std::string_view from, std::string_view to, int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string pad(std::string_view text, int64_t width, std::string_view fill, Side text_side);

class JoinedText {
 public:
  explicit JoinedText(Value separator) : separator_(std::move(separator)) {}
  void add(const Value& part);
  Value take() { return out_.take(); }

 private:
  Value separator_;
  TracedText out_;
  bool first_ = true;
};

}  // namespace temper::templates
