#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "templates/values/limits.h"
#include "templates/values/markup.h"
#include "templates/values/operators.h"
#include "templates/values/traced_text.h"

namespace temper::templates {
namespace {

using ValueKind = Value::Kind;

[[noreturn]] void refuse(std::string_view op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (op == "+" && a.is_string()) fail("can only concatenate str (not \"{}\") to str", b.type_name());
  fail("unsupported operand type(s) for {}: '{}' and '{}'", op, a.type_name(), b.type_name());
}

[[noreturn]] void refuse_large() { fail("an integer does not fit into 64 bits"); }

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) refuse_large();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) refuse_large();
  }
  return result;
}

double float_power(double base, double exponent) {
  if (base == 0 && exponent < 0) fail("0.0 cannot be raised to a negative power");
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent))
    fail("complex numbers are not supported");
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    fail("a power is too large for a float");
  return result;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (a == INT64_MIN && b == -1) refuse_large();
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t integer_modulo(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool large = false;
  if (op == "+")
    large = __builtin_add_overflow(a, b, &result);
  else if (op == "-")
    large = __builtin_sub_overflow(a, b, &result);
  else if (op == "*")
    large = __builtin_mul_overflow(a, b, &result);
  else if (op == "//")
    result = floor_divide(a, b);
  else if (op == "%")
    result = integer_modulo(a, b);
  else if (b < 0)
    return float_power(static_cast<double>(a), static_cast<double>(b));
  else
    result = integer_power(a, b);
  if (large) refuse_large();
  return result;
}

Value numbers(std::string_view op, const Value& left, const Value& right) {
  const double a = left.number(), b = right.number();
  if (op == "/") {
    if (b == 0) fail("division by zero");
    return a / b;
  }
  if (left.is_integer() && right.is_integer()) return integers(op, left.integer(), right.integer());
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return float_power(a, b);
  if (b == 0) fail("float modulo or division by zero");
  return op == "//" ? (a - float_modulo(a, b)) / b : float_modulo(a, b);
}

Value repeat(const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is_string()) {
    check_text_size(count, value.text().size());
    std::string out;
    out.reserve(count * value.text().size());
    for (size_t i = 0; i < count && !value.text().empty(); ++i) out += value.text();
    return like(value, std::move(out));
  }
  check_items(value.items().size(), count);
  List out;
  for (size_t i = 0; i < count && !value.items().empty(); ++i)
    out.insert(out.end(), value.items().begin(), value.items().end());
  return value.is(ValueKind::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

bool repeats(const Value& value) {
  return value.is_string() || value.is(ValueKind::kList) || value.is(ValueKind::kTuple);
}

}  // namespace

std::optional<double> parse_float(std::string_view digits) {
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool named = digits.find('(') != std::string_view::npos;  // nan(1)
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size() || named)
    return std::nullopt;
  return error == std::errc() ? value : std::strtod(std::string(digits).c_str(), nullptr);
}

int64_t to_int64(double value) {
  if (!(value > -9.2e18 && value < 9.2e18)) fail("cannot convert {} to an integer of 64 bits", value);
  return static_cast<int64_t>(value);
}

Value arithmetic(std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return numbers(op, a, b);
  if (op == "+" && a.is_string() && b.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    TracedText text;
    text.print(markup ? escaped(a) : a);
    text.print(markup ? escaped(b) : b);
    return text.take(markup);
  }
  if (op == "+" && a.kind() == b.kind() && (a.is(ValueKind::kList) || a.is(ValueKind::kTuple))) {
    List items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(ValueKind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (op == "*" && repeats(a) && b.is_integer()) return repeat(a, b.integer());
  if (op == "*" && repeats(b) && a.is_integer()) return repeat(b, a.integer());
  if (op == "%" && a.is_string()) return percent_format(a, b);
  refuse(op, a, b);
}

Value negative(const Value& value) {
  if (value.is_integer()) return integers("-", 0, value.integer());
  if (value.is_number()) return -value.number();
  require_defined(value);
  fail("bad operand type for unary -: '{}'", value.type_name());
}

}  // namespace temper::templates
