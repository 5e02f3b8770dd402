#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "config/field.h"
#include "config/node.h"

namespace temper::config {

// Decimal text: an optional sign, digits without leading zeros, a fraction, an exponent. nullopt for
// anything else (underscores, hexadecimal, infinity, nan, out of range).
std::optional<double> parse_number(std::string_view text);

// The same grammar when the value is exactly a 64-bit integer: 12, 1e6, 2.5e3, 10.0.
std::optional<int64_t> parse_integer(std::string_view text);

// The value of `field`, a kValue, that `node` writes: of the right type, size and range. Errors name
// node.where and `path`.
Json read_value(const Field& field, const Node& node, std::string_view path);

// A value on one line of YAML that read_value() reads back equal.
std::string print_value(const Json& value);

}  // namespace temper::config
