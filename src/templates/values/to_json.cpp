#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/values/limits.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}
  std::string take() { return std::move(out_); }

  void write(const Value& value) {
    spend();
    check_text_size(1, out_.size());
    switch (value.kind()) {
      case Value::Kind::kNone:
        out_ += "null";
        return;
      case Value::Kind::kBool:
        out_ += value.integer() ? "true" : "false";
        return;
      case Value::Kind::kInt:
        out_ += fmt::format("{}", value.integer());
        return;
      case Value::Kind::kFloat:
        out_ += number(value);
        return;
      case Value::Kind::kString:
        return write_text(value.text());
      case Value::Kind::kList:
      case Value::Kind::kTuple:
        return write_items(value.items());
      case Value::Kind::kDict:
        return write_entries(value.entries());
      default:
        fail("Object of type {} is not JSON serializable", value.type_name());
    }
  }

 private:
  static std::string number(const Value& value) {
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() > 0 ? "Infinity" : "-Infinity";
    return repr(value);
  }

  void write_text(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      const Utf8Step step = next_utf8(text);
      write_character(step.value, text.substr(0, step.size));
      text.remove_prefix(step.size);
    }
    out_ += '"';
  }

  void write_character(char32_t c, std::string_view bytes) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const size_t at = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[at];
    } else if (c >= 0x20 && (!style_.ascii_only || c < 0x7F)) {
      out_ += bytes;
    } else if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      const auto above = static_cast<uint32_t>(c) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
    }
  }

  void new_line() {
    if (!style_.spread) return;
    out_ += '\n';
    check_text_size(static_cast<size_t>(level_), style_.indent.size());
    for (int i = 0; i < level_; ++i) out_ += style_.indent;
    check_text_size(1, out_.size());
  }

  void write_items(const List& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_ += style_.item_separator;
      new_line();
      write(items[i]);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  static std::string key_text(const Value& key) {
    if (key.is_string()) return key.text();
    if (key.is_none()) return "null";
    if (key.is(Value::Kind::kBool)) return key.integer() ? "true" : "false";
    if (key.is(Value::Kind::kFloat)) return number(key);
    if (key.is_integer()) return repr(key);
    fail("keys must be str, int, float, bool or None, not {}", key.type_name());
  }

  void write_entries(Dict entries) {
    if (entries.empty()) {
      out_ += "{}";
      return;
    }
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return less_than(a.first, b.first); });
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i) out_ += style_.item_separator;
      new_line();
      write_text(key_text(entries[i].first));
      out_ += style_.key_separator;
      write(entries[i].second);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace temper::templates
