#include "base/json/json.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace temper {
namespace {

template <class T, class Self>
auto& get(Self& value, std::string_view expected, std::string_view found) {
  auto* held = std::get_if<T>(&value);
  if (held == nullptr) fail("expected {}, found {}", expected, found);
  return *held;
}

void append_escape(std::string& out, unsigned code) { out += fmt::format("\\u{:04x}", code); }

// Decodes one code point of valid UTF-8 at text[i] and advances i.
char32_t next_code_point(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  const size_t extra = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t code = extra == 0 ? lead : lead & (0x3F >> extra);
  for (size_t k = 1; k <= extra && i + k < text.size(); ++k) code = code << 6 | (byte(i + k) & 0x3F);
  i += extra + 1;
  return code;
}

void append_string(std::string& out, std::string_view text, bool ascii_only) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x80) {
      const size_t begin = i;
      const char32_t code = next_code_point(text, i);
      if (!ascii_only) {
        out += text.substr(begin, i - begin);
      } else if (code >= 0x10000) {
        append_escape(out, 0xD800 + ((code - 0x10000) >> 10));
        append_escape(out, 0xDC00 + ((code - 0x10000) & 0x3FF));
      } else {
        append_escape(out, code);
      }
      continue;
    }
    ++i;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          append_escape(out, static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
  out += '"';
}

struct Printer {
  int indent;
  bool ascii_only;
  std::string out;

  void newline(int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * depth), ' ');
  }

  template <class Items, class Each>
  void list(char open, char close, const Items& items, int depth, Each each) {
    out += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out += indent < 0 ? ", " : ",";
      first = false;
      newline(depth + 1);
      each(item);
    }
    if (!first) newline(depth);
    out += close;
  }

  void print(const Json& value, int depth) {
    switch (value.kind()) {
      case Json::Kind::kNull:
        out += "null";
        break;
      case Json::Kind::kBool:
        out += value.as_bool() ? "true" : "false";
        break;
      case Json::Kind::kInt:
        out += std::to_string(value.as_int());
        break;
      case Json::Kind::kFloat:
        out += format_double(value.as_double());
        break;
      case Json::Kind::kString:
        append_string(out, value.as_string(), ascii_only);
        break;
      case Json::Kind::kArray:
        list('[', ']', value.as_array(), depth, [&](const Json& item) { print(item, depth + 1); });
        break;
      case Json::Kind::kObject:
        list('{', '}', value.as_object(), depth, [&](const auto& member) {
          append_string(out, member.first, ascii_only);
          out += ": ";
          print(member.second, depth + 1);
        });
        break;
    }
  }
};

}  // namespace

std::string format_double(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  const int exponent = std::stoi(std::string(text.substr(text.find('e') + 1)));
  if (value != 0 && (exponent < -4 || exponent >= 16)) return std::string(text);
  char fixed[40];
  const auto stop = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
  std::string out(fixed, stop);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string Json::dump(int indent, bool ascii_only) const {
  Printer printer{indent, ascii_only, {}};
  printer.print(*this, 0);
  return std::move(printer.out);
}

std::string_view Json::kind_name() const {
  static constexpr std::string_view kNames[] = {"null",     "a boolean", "an integer", "a number",
                                                "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const { return get<bool>(value_, "a boolean", kind_name()); }
int64_t Json::as_int() const { return get<int64_t>(value_, "an integer", kind_name()); }
double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  return get<double>(value_, "a number", kind_name());
}
const std::string& Json::as_string() const& { return get<std::string>(value_, "a string", kind_name()); }
const Json::Array& Json::as_array() const& { return get<Array>(value_, "an array", kind_name()); }
const Json::Object& Json::as_object() const& { return get<Object>(value_, "an object", kind_name()); }
Json::Array& Json::as_array() & { return get<Array>(value_, "an array", kind_name()); }
Json::Object& Json::as_object() & { return get<Object>(value_, "an object", kind_name()); }
std::string Json::as_string() && { return std::move(get<std::string>(value_, "a string", kind_name())); }
Json::Array Json::as_array() && { return std::move(get<Array>(value_, "an array", kind_name())); }
Json::Object Json::as_object() && { return std::move(get<Object>(value_, "an object", kind_name())); }

const Json* Json::find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object)
    if (name == key) return &value;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) fail("key '{}' is missing from {}", key, kind_name());
  return *value;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  for (auto& [name, held] : as_object())
    if (name == key) {
      held = std::move(value);
      return;
    }
  as_object().emplace_back(std::string(key), std::move(value));
}

}  // namespace temper
