#include "templates/print.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "templates/loop.h"
#include "templates/unicode.h"

namespace temper::templates {
namespace {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return format_double(value);
}

std::string text_repr(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char32_t quote = double_quotes ? '"' : '\'';
  std::string out(1, static_cast<char>(quote));
  for (const char32_t c : to_utf32(text)) {
    if (c == quote || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (is_printable(c))
      append_utf8(out, c);
    else if (c < 0x100)
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    else if (c < 0x10000)
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
  out += static_cast<char>(quote);
  return out;
}

std::string items_repr(const List& items) {
  std::string out;
  for (const Value& item : items) {
    if (!out.empty()) out += ", ";
    out += repr(item);
  }
  return out;
}

std::string dict_repr(const Dict& entries) {
  std::string out;
  for (const auto& [key, value] : entries) {
    if (!out.empty()) out += ", ";
    out += repr(key) + ": " + repr(value);
  }
  return fmt::format("{{{}}}", out);
}

}  // namespace

std::string to_text(const Value& value) {
  if (value.is_undefined()) return "";
  return value.is_string() ? value.text() : repr(value);
}

std::string repr(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "None";
    case Value::Kind::kBool:
      return value.integer() ? "True" : "False";
    case Value::Kind::kInt:
      return fmt::format("{}", value.integer());
    case Value::Kind::kFloat:
      return float_text(value.number());
    case Value::Kind::kString:
      return text_repr(value.text());
    case Value::Kind::kList:
      return fmt::format("[{}]", items_repr(value.items()));
    case Value::Kind::kTuple:
      return fmt::format("({}{})", items_repr(value.items()), value.items().size() == 1 ? "," : "");
    case Value::Kind::kDict:
      return dict_repr(value.entries());
    case Value::Kind::kLoop:
      return fmt::format("<LoopContext {}/{}>", value.loop().index(), value.loop().length());
    case Value::Kind::kGenerator:
    case Value::Kind::kNamespace:
    case Value::Kind::kFunction:
      break;
  }
  fail("a {} cannot be printed{}", value.type_name(), value.is(Value::Kind::kGenerator) ? "; add |list" : "");
}

}  // namespace temper::templates
