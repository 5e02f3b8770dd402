#include "templates/builtins/format_spec.h"

#include <cmath>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

constexpr int64_t kMostWidth = 1000;

struct Spec {
  std::string fill = " ";
  char align = 0, sign = 0, grouping = 0, type = 0;
  bool alternate = false;
  int64_t width = 0, precision = -1;
};

bool is_align(std::string_view text) {
  return !text.empty() && std::string_view("<>=^").find(text[0]) != std::string_view::npos;
}

int64_t take_number(std::string_view& rest) {
  int64_t value = 0;
  for (; !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; rest.remove_prefix(1)) {
    value = value * 10 + (rest[0] - '0');
    if (value > kMostWidth) fail("a width or precision of more than {} is not supported", kMostWidth);
  }
  return value;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::string_view rest = text;
  const auto take = [&](std::string_view any) {
    if (rest.empty() || any.find(rest[0]) == std::string_view::npos) return char{0};
    const char taken = rest[0];
    rest.remove_prefix(1);
    return taken;
  };
  const size_t first = rest.empty() ? 0 : next_utf8(rest).size;
  if (is_align(rest.substr(first))) {
    spec.fill = rest.substr(0, first);
    rest.remove_prefix(first);
  }
  spec.align = take("<>=^");
  spec.sign = take("+- ");
  spec.alternate = take("#") != 0;
  if (rest.starts_with('0') && !spec.align) {
    spec.fill = '0';
    spec.align = '0';  // '=' for numbers, '<' for texts
  }
  spec.width = take_number(rest);
  spec.grouping = take(",_");
  if (take(".")) {
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') fail("Format specifier missing precision");
    spec.precision = take_number(rest);
  }
  if (!rest.empty()) spec.type = take("sdbcoxXneEfFgG%");
  if (!rest.empty()) fail("Invalid format specifier '{}'", text);
  return spec;
}

std::string filled(const Spec& spec, std::string_view sign, std::string_view body, char align) {
  const auto size = static_cast<int64_t>(length_of(Value(body)) + sign.size());
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string left, right;
  for (int64_t i = 0; i < before; ++i) left += spec.fill;
  for (int64_t i = before; i < missing; ++i) right += spec.fill;
  if (align == '=') return std::string(sign) + left + std::string(body);
  return left + std::string(sign) + std::string(body) + right;
}

std::string format_string(const std::string& text, const Spec& spec) {
  if (spec.type && spec.type != 's') fail("Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.sign || spec.alternate || spec.grouping || spec.align == '=')
    fail("this format specifier is not allowed for a str");
  std::u32string characters = to_utf32(text);
  if (spec.precision >= 0 && static_cast<int64_t>(characters.size()) > spec.precision)
    characters.resize(static_cast<size_t>(spec.precision));
  return filled(spec, "", to_utf8(characters), spec.align && spec.align != '0' ? spec.align : '<');
}

// With `separator` between groups of digits before the point.
std::string grouped(const std::string& digits, char separator, size_t group) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i && (end - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string number_filled(const Spec& spec, bool negative, std::string prefix, const std::string& body) {
  const std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  const char align = spec.align == '0' ? '=' : spec.align ? spec.align : '>';
  if (spec.grouping && spec.fill == "0" && align == '=')
    fail("zeros before grouped digits are not supported");
  return filled(spec, sign + prefix, body, align);
}

std::string format_integer(int64_t value, const Spec& spec) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (spec.type == 'c') {
    if (spec.sign || value < 0 || value > 0x10FFFF) fail("%c arg not in range(0x110000)");
    std::string character;
    append_utf8(character, static_cast<char32_t>(value));
    return filled(spec, "", character, spec.align && spec.align != '0' ? spec.align : '<');
  }
  std::string digits, prefix;
  if (spec.type == 'b')
    digits = fmt::format("{:b}", size), prefix = "0b";
  else if (spec.type == 'o')
    digits = fmt::format("{:o}", size), prefix = "0o";
  else if (spec.type == 'x')
    digits = fmt::format("{:x}", size), prefix = "0x";
  else if (spec.type == 'X')
    digits = fmt::format("{:X}", size), prefix = "0X";
  else
    digits = fmt::format("{}", size);
  if (spec.grouping == ',' && !prefix.empty()) fail("Cannot specify ',' with '{}'", spec.type);
  if (spec.grouping) digits = grouped(digits, spec.grouping, prefix.empty() ? 3 : 4);
  return number_filled(spec, value < 0, spec.alternate ? prefix : "", digits);
}

std::string format_float(double value, const Spec& spec) {
  if (spec.type && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos)
    fail("Unknown format code '{}' for object of type 'float'", spec.type);
  if (spec.alternate) fail("'#' is not supported for a float");
  const bool negative = std::signbit(value);
  const double size = std::fabs(spec.type == '%' ? value * 100 : value);
  std::string body;
  if (!spec.type && spec.precision < 0) {
    body = to_text(Value(size));
  } else {
    const char conversion = spec.type == '%' ? 'f' : !spec.type || spec.type == 'n' ? 'g' : spec.type;
    const char pattern[] = {'%', '.', '*', conversion, 0};
    char buffer[1400];
    std::snprintf(buffer, sizeof buffer, pattern, spec.precision < 0 ? 6 : static_cast<int>(spec.precision),
                  size);
    body = buffer;
    if (!spec.type && body.find_first_not_of("0123456789") == std::string::npos) body += ".0";
    if (spec.type == '%') body += '%';
  }
  if (spec.grouping && std::isfinite(size)) body = grouped(body, spec.grouping, 3);
  return number_filled(spec, negative && !std::isnan(value), "", body);
}

}  // namespace

std::string format_value(const Value& value, std::string_view text) {
  if (text.empty()) return to_text(value);
  const Spec spec = parse_spec(text);
  if (value.is_string()) return format_string(value.text(), spec);
  const bool floating = spec.type && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is_integer() && spec.type == 's') fail("Unknown format code 's' for object of type 'int'");
  if (value.is_integer() && !floating) return format_integer(value.integer(), spec);
  if (value.is_number()) return format_float(value.number(), spec);
  fail("unsupported format string passed to {}.__format__", value.type_name());
}

}  // namespace temper::templates
