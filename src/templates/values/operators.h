#pragma once
#include <optional>
#include <string_view>

#include "templates/values/value.h"

// Python's operators. What Python refuses is an Error; undefined values fail with their own message.
namespace temper::templates {

bool is_true(const Value& value);
bool equals(const Value& a, const Value& b);
bool less_than(const Value& a, const Value& b);
size_t find_text(std::string_view text, std::string_view part);  // linear in both, npos when absent
size_t rfind_text(std::string_view text, std::string_view part);
bool contains(const Value& container, const Value& item);
void require_defined(const Value& value);

// Binary + - * / // % **, named by their spelling.
Value arithmetic(std::string_view op, const Value& a, const Value& b);
Value negative(const Value& value);
std::optional<double> parse_float(std::string_view digits);  // all of it; too large is inf, too small 0
int64_t to_int64(double value);                              // truncates; an Error when it does not fit

List items_of(const Value& value);  // what a for loop sees; empties generators
size_t length_of(const Value& value);

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step);
Value percent_format(const Value& format, const Value& values);  // 'format' % values

}  // namespace temper::templates
