#include "config/scalars.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/home.h"
#include "base/text.h"
#include "config/schema.h"

namespace temper::config {
namespace {

struct Decimal {
  bool negative = false;
  std::string digits;    // without the point
  int64_t exponent = 0;  // value = digits * 10^exponent
};

std::string_view take_digits(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

bool take_sign(std::string_view& text) {
  if (text.empty() || (text.front() != '-' && text.front() != '+')) return false;
  const bool negative = text.front() == '-';
  text.remove_prefix(1);
  return negative;
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal decimal;
  decimal.negative = take_sign(text);
  const std::string_view whole = take_digits(text);
  if (whole.size() > 1 && whole.front() == '0') return std::nullopt;  // octal elsewhere
  decimal.digits = whole;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const std::string_view fraction = take_digits(text);
    decimal.digits += fraction;
    decimal.exponent = -static_cast<int64_t>(fraction.size());
  }
  if (decimal.digits.empty()) return std::nullopt;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    const bool negative = take_sign(text);
    const std::string_view digits = take_digits(text);
    if (digits.empty() || digits.size() > 6) return std::nullopt;
    const int64_t exponent = std::stoll(std::string(digits));
    decimal.exponent += negative ? -exponent : exponent;
  }
  return text.empty() ? std::optional(decimal) : std::nullopt;
}

// As YAML and other programs write infinity and what is not a number.
bool is_infinite(std::string_view text) {
  take_sign(text);
  if (text.starts_with('.')) text.remove_prefix(1);
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "inf" || lower == "infinity" || lower == "nan";
}

// Why plain text that looks like a value of the expected type is refused.
std::string hint(const Type& type, const Node& node) {
  const std::string& text = node.text;
  if (node.kind != Node::Kind::kText) return "";
  if (type.scalar == Type::Scalar::kBool) {
    static const std::vector<std::string> kOther = {"on", "off",  "yes",   "no", "y",
                                                    "n",  "True", "False", "0",  "1"};
    const bool looks = std::find(kOther.begin(), kOther.end(), text) != kOther.end();
    if (looks) return "; only true and false are booleans";
  }
  const bool number = type.scalar == Type::Scalar::kInt || type.scalar == Type::Scalar::kFloat;
  if (node.quoted && (number || type.scalar == Type::Scalar::kBool)) return "; remove the quotes";
  if (number && is_infinite(text)) return "; a number must be finite";
  if (number && text.find('_') != std::string::npos) return "; numbers have no underscores";
  if (number && text.size() > 1 && text[0] == '0' &&
      text.find_first_not_of("0123456789") == std::string::npos)
    return "; numbers have no leading zeros";
  if (type.scalar == Type::Scalar::kChoice) {
    const std::string near = nearest_name(text, type.choices);
    if (!near.empty()) return fmt::format("; did you mean '{}'?", near);
  }
  return "";
}

[[noreturn]] void fail_value(const Field& field, bool element, const Node& node, std::string_view path) {
  for (const auto& [value, text] : field.limits.answers)
    if (node.kind == Node::Kind::kText && node.text == value)
      fail("[{}] '{}': expected {}, found '{}'; {}", node.where, path, expectation(field, element), value,
           text);
  fail("[{}] '{}': expected {}, found {}{}", node.where, path, expectation(field, element),
       describe_node(node), hint(field.type, node));
}

std::optional<Json> read_table(const Node& node) {
  if (node.kind != Node::Kind::kMap) return std::nullopt;
  Json::Object rows;
  for (const auto& [row, cells] : node.members) {
    if (cells.kind != Node::Kind::kMap)
      fail("[{}] '{}': expected a mapping to text, found {}", cells.where, row, describe_node(cells));
    Json::Object values;
    for (const auto& [key, value] : cells.members) {
      if (value.kind != Node::Kind::kText)
        fail("[{}] '{}' of '{}': expected text, found {}", value.where, key, row, describe_node(value));
      values.emplace_back(key, value.text);
    }
    rows.emplace_back(row, std::move(values));
  }
  return rows;
}

std::optional<Json> read_scalar(const Field& field, const Node& node, std::string_view path) {
  const Type& type = field.type;
  if (type.scalar == Type::Scalar::kTable) return read_table(node);
  if (node.kind != Node::Kind::kText) return std::nullopt;
  if (type.scalar == Type::Scalar::kString) {
    if (node.text.find('\0') != std::string::npos)
      fail("[{}] '{}': the text has a NUL character; remove it", node.where, path);
    return Json(field.is_path ? expand_home(node.text) : node.text);
  }
  if (type.scalar == Type::Scalar::kChoice) {
    const bool known = std::find(type.choices.begin(), type.choices.end(), node.text) != type.choices.end();
    return known ? std::optional<Json>(node.text) : std::nullopt;
  }
  if (node.quoted) return std::nullopt;
  if (type.scalar == Type::Scalar::kBool) {
    const bool known = node.text == "true" || node.text == "false";
    return known ? std::optional<Json>(node.text == "true") : std::nullopt;
  }
  if (type.scalar == Type::Scalar::kInt) {
    const std::optional<int64_t> value = parse_integer(node.text);
    return value && *value >= type.lowest && *value <= type.highest ? std::optional<Json>(*value)
                                                                    : std::nullopt;
  }
  const std::optional<double> value = parse_number(node.text);
  return value ? std::optional<Json>(*value) : std::nullopt;
}

std::string quote(const std::string& text) {
  // Invisible characters that some readers take for line breaks or drop.
  static const std::pair<std::string_view, std::string_view> kSpecial[] = {{"\"", "\\\""},
                                                                           {"\\", "\\\\"},
                                                                           {"\n", "\\n"},
                                                                           {"\t", "\\t"},
                                                                           {"\xE2\x80\xA8", "\\L"},
                                                                           {"\xE2\x80\xA9", "\\P"},
                                                                           {"\xEF\xBB\xBF", "\\uFEFF"}};
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    const auto special = std::find_if(std::begin(kSpecial), std::end(kSpecial),
                                      [&](const auto& pair) { return rest.starts_with(pair.first); });
    const auto byte = [&](size_t k) { return k < rest.size() ? static_cast<unsigned char>(rest[k]) : 0; };
    const bool control = byte(0) < 0x20 || byte(0) == 0x7F;
    const bool second_control = byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0;  // U+0080 to U+009F
    if (special != std::end(kSpecial)) {
      out += special->second;
      i += special->first.size();
    } else if (control || second_control) {
      out += fmt::format("\\x{:02x}", byte(second_control ? 1 : 0));
      i += second_control ? 2 : 1;
    } else {
      out += text[i++];
    }
  }
  return out + '"';
}

// Text that every YAML reader takes for the same string without quotes.
bool is_plain(const std::string& text) {
  static const std::vector<std::string> kReserved = {"true", "false", "null", "yes", "no",
                                                     "on",   "off",   "y",    "n"};
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  if (text.empty() || (text[0] != '/' && kLetters.find(text[0]) == std::string_view::npos)) return false;
  const bool safe = std::all_of(text.begin(), text.end(), [](char c) {
    return kLetters.find(c) != std::string_view::npos ||
           std::string_view("0123456789./-").find(c) != std::string_view::npos;
  });
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return safe && std::find(kReserved.begin(), kReserved.end(), lower) == kReserved.end();
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  std::string_view rest = text;
  const bool negative = take_sign(rest);
  if (!parse_decimal(text)) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (result.ec != std::errc()) return std::nullopt;  // too large or too small
  return negative ? -value : value;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  std::optional<Decimal> decimal = parse_decimal(text);
  if (!decimal) return std::nullopt;
  std::string& digits = decimal->digits;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return 0;
  for (; decimal->exponent < 0 && digits.back() == '0'; ++decimal->exponent) digits.pop_back();
  if (decimal->exponent < 0 || decimal->exponent > 18) return std::nullopt;
  digits.append(static_cast<size_t>(decimal->exponent), '0');
  const std::string signed_digits = fmt::format("{}{}", decimal->negative ? "-" : "", digits);
  int64_t value = 0;
  const auto result =
      std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value);
  return result.ec == std::errc() ? std::optional(value) : std::nullopt;
}

Json read_value(const Field& field, const Node& node, std::string_view path) {
  const Type& type = field.type;
  if (node.kind == Node::Kind::kNull && type.optional) return {};
  if (!type.list) {
    std::optional<Json> value = read_scalar(field, node, path);
    if (!value || !field.limits.take(*value)) fail_value(field, false, node, path);
    return *std::move(value);
  }
  // One text in the place of a list is its only element: a file, a module.
  if (node.kind == Node::Kind::kText && type.scalar == Type::Scalar::kString && type.size < 0)
    return Json::Array{*read_scalar(field, node, path)};
  if (node.kind != Node::Kind::kList) fail_value(field, false, node, path);
  if (type.size >= 0 && static_cast<int64_t>(node.items.size()) != type.size)
    fail_value(field, false, node, path);
  Json::Array values;
  for (size_t i = 0; i < node.items.size(); ++i) {
    std::optional<Json> value = read_scalar(field, node.items[i], path);
    if (!value || !field.limits.take(*value))
      fail_value(field, true, node.items[i], fmt::format("{}[{}]", path, i));
    values.push_back(*std::move(value));
  }
  return values;
}

std::string print_value(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_string()) return is_plain(value.as_string()) ? value.as_string() : quote(value.as_string());
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const Json& item : value.as_array()) items.push_back(print_value(item));
    return fmt::format("[{}]", join(items));
  }
  if (value.is_object()) {
    std::vector<std::string> items;
    for (const auto& [key, item] : value.as_object())
      items.push_back(fmt::format("{}: {}", is_plain(key) ? key : quote(key), print_value(item)));
    return fmt::format("{{{}}}", join(items));
  }
  invariant(value.kind() != Json::Kind::kFloat || std::isfinite(value.as_double()),
            "a configuration value is not finite");
  return value.dump();
}

}  // namespace temper::config
