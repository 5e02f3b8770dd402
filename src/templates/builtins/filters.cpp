#include "templates/builtins/filters.h"

#include <cmath>

#include "base/error.h"
#include "base/numbers.h"
#include "templates/builtins/lookup.h"
#include "templates/builtins/methods.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

Value default_filter(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'default'", {"default_value", "boolean"});
  const bool replaced = subject.is_undefined() || (args.truth(1, false) && !is_true(subject));
  if (!replaced) return subject;
  return args.get(0) ? args[0] : Value("");
}

// A whole text as a number, as Python's int() and float() read it.
std::optional<int64_t> parse_int(const std::string& text, int base) {
  std::string digits(strip(text, nullptr, Side::kBoth));
  std::erase(digits, '_');
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const bool prefixed = digits.size() > 2 && digits[0] == '0';
  const char kind = prefixed ? static_cast<char>(digits[1] | 0x20) : ' ';
  if ((kind == 'x' && base == 16) || (kind == 'o' && base == 8) || (kind == 'b' && base == 2))
    digits.erase(0, 2);
  if (digits.starts_with('-')) return std::nullopt;
  const auto value = parse_integer_of<int64_t>(digits, base);
  return value && negative ? std::optional(-*value) : value;
}

std::optional<double> parse_number(const std::string& text) {
  std::string digits(strip(text, nullptr, Side::kBoth));
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  return parse_float(digits);
}

Value int_filter(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'int'", {"default", "base"});
  const Value otherwise = args.get(0) ? args[0] : Value(0);
  const int64_t base = args.integer(1, 10);
  if (base < 2 || base > 36) fail("filter 'int': base must be 2 to 36, found {}", base);
  require_defined(subject);
  if (subject.is_integer()) return subject.integer();
  std::optional<double> number;
  if (subject.is_number()) number = subject.number();
  if (subject.is_string()) {
    if (const auto value = parse_int(subject.text(), static_cast<int>(base))) return *value;
    number = parse_number(subject.text());
  }
  return number && std::isfinite(*number) ? Value(to_int64(*number)) : otherwise;
}

Value float_filter(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'float'", {"default"});
  require_defined(subject);
  if (subject.is_number()) return subject.number();
  const auto value = subject.is_string() ? parse_number(subject.text()) : std::nullopt;
  if (value) return *value;
  return args.get(0) ? args[0] : Value(0.0);
}

Value abs_filter(const Value& subject, const Arguments&) {
  if (!subject.is_number()) fail("bad operand type for abs(): '{}'", subject.type_name());
  return is_true(Value(less_than(subject, 0))) ? negative(subject)
         : subject.is_integer()                ? Value(subject.integer())
                                               : subject;
}

Value round_filter(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'round'", {"precision", "method"});
  const int64_t precision = args.integer(0, 0);
  const std::string method = args.text(1, "common");
  require_defined(subject);
  if (!subject.is_number()) fail("filter 'round' needs a number, found {}", subject.type_name());
  if (precision < -300 || precision > 300) fail("filter 'round': precision {} is out of range", precision);
  const double value = subject.number(), scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(value * scale) / scale;
  if (method == "floor") return std::floor(value * scale) / scale;
  if (method != "common") fail("method must be common, ceil or floor");
  if (!std::isfinite(value)) return value;
  if (precision < 0) {  // ties go to the even neighbour
    const double rounded = std::nearbyint(value * scale) / scale;
    return subject.is_integer() ? Value(to_int64(rounded)) : Value(rounded);
  }
  if (subject.is_integer()) return subject.integer();
  return *parse_float(fmt::format("{:.{}f}", value, precision));
}

Value attr(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'attr'", {"name"}, 1);
  const Value found = get_attribute(subject, args.text(0, ""));
  const bool key = subject.is_dict() && subject.find(args.text(0, ""));
  return key ? Value(Undefined{fmt::format("'dict object' has no attribute '{}'", args.text(0, ""))}) : found;
}

constexpr std::pair<std::string_view, Filter> kCommonFilters[] = {
    {"default", default_filter}, {"d", default_filter},   {"int", int_filter}, {"float", float_filter},
    {"abs", abs_filter},         {"round", round_filter}, {"attr", attr}};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const auto& [known, filter] : kCommonFilters)
    if (known == name) return filter;
  if (const Filter filter = find_text_filter(name)) return filter;
  if (const Filter filter = find_list_filter(name)) return filter;
  return find_select_filter(name);
}

Filter filter_named(std::string_view name) {
  const Filter filter = find_filter(name);
  if (!filter) fail("no filter named '{}'", name);
  return filter;
}

Getter attribute_getter(const Value* attribute, const Value* otherwise) {
  if (!attribute || attribute->is_none()) return [](const Value& item) { return item; };
  std::vector<Value> parts;
  if (attribute->is_string()) {
    std::string_view rest = attribute->text();
    while (true) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      const std::string part(rest.substr(0, dot));
      const bool number =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
      parts.push_back(number ? Value(static_cast<int64_t>(std::stoll(part))) : Value(part));
      if (dot == rest.size()) break;
      rest.remove_prefix(dot + 1);
    }
  } else {
    parts.push_back(*attribute);
  }
  const Value fallback = otherwise ? *otherwise : Value();
  const bool has_fallback = otherwise && !otherwise->is_none();
  return [parts, fallback, has_fallback](const Value& item) {
    Value value = item;
    for (const Value& part : parts) {
      value = get_item(value, part);
      if (has_fallback && value.is_undefined()) value = fallback;
    }
    return value;
  };
}

}  // namespace temper::templates
