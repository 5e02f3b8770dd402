#include "templates/values/print.h"

#include <cmath>

#include "base/error.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "templates/text/unicode.h"
#include "templates/values/limits.h"
#include "templates/values/loop.h"

namespace temper::templates {
namespace {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return format_double(value);
}

void put_text(std::string& out, std::string_view text) {
  spend(text.size());
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char32_t quote = double_quotes ? '"' : '\'';
  out += static_cast<char>(quote);
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
}

void put_repr(std::string& out, const Value& value, int depth);

void put_items(std::string& out, const List& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out += ", ";
    put_repr(out, items[i], depth);
  }
}

void put_entries(std::string& out, const Dict& entries, int depth) {
  out += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i) out += ", ";
    put_repr(out, entries[i].first, depth);
    out += ": ";
    put_repr(out, entries[i].second, depth);
  }
  out += '}';
}

void put_view(std::string& out, const ViewData& view, int depth) {
  if (view.name == "range") {
    out += view.text;
    return;
  }
  out += view.name;
  out += "([";
  put_items(out, view.items, depth);
  out += "])";
}

void put_namespace(std::string& out, const Namespace& names, int depth) {
  Dict entries;
  for (const auto& [name, value] : names.entries) entries.emplace_back(name, value);
  out += "<Namespace ";
  put_entries(out, entries, depth);
  out += '>';
}

// Values are not nested deeper than kMostDepth, but a namespace may hold itself.
void put_repr(std::string& out, const Value& value, int depth) {
  if (++depth > kMostDepth + 2) fail("a namespace that holds itself cannot be printed");
  spend();
  check_text_size(1, out.size());
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      out += "Undefined";
      return;
    case Value::Kind::kNone:
      count_none();
      out += "None";
      return;
    case Value::Kind::kBool:
      out += value.integer() ? "True" : "False";
      return;
    case Value::Kind::kInt:
      out += fmt::format("{}", value.integer());
      return;
    case Value::Kind::kFloat:
      out += float_text(value.number());
      return;
    case Value::Kind::kString:
      if (value.is_markup()) out += "Markup(";
      put_text(out, value.text());
      if (value.is_markup()) out += ')';
      return;
    case Value::Kind::kList:
      out += '[';
      put_items(out, value.items(), depth);
      out += ']';
      return;
    case Value::Kind::kTuple:
      out += '(';
      put_items(out, value.items(), depth);
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Value::Kind::kView:
      return put_view(out, value.view(), depth);
    case Value::Kind::kDict:
      return put_entries(out, value.entries(), depth);
    case Value::Kind::kLoop:
      out += fmt::format("<LoopContext {}/{}>", value.loop().index(), value.loop().length());
      return;
    case Value::Kind::kNamespace:
      return put_namespace(out, value.names(), depth);
    case Value::Kind::kGenerator:
    case Value::Kind::kFunction:
      break;
  }
  fail("a {} cannot be printed{}", value.type_name(), value.is(Value::Kind::kGenerator) ? "; add |list" : "");
}

}  // namespace

std::string to_text(const Value& value) {
  if (value.is_undefined()) return "";
  return value.is_string() ? value.text() : repr(value);
}

std::string repr(const Value& value) {
  std::string out;
  put_repr(out, value, 0);
  return out;
}

std::string describe(const Value& value) {
  if (value.is_none()) return "None";
  return fmt::format("'{} object'", value.type_name());
}

}  // namespace temper::templates
