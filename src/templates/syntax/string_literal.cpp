#include "templates/syntax/string_literal.h"

#include "base/utf8.h"

namespace temper::templates {
namespace {

// Reads up to `most` digits of a base at text[at].
std::optional<char32_t> digits(std::string_view text, size_t& at, size_t least, size_t most, int base) {
  char32_t value = 0;
  size_t count = 0;
  for (; count < most && at < text.size(); ++count, ++at) {
    const char c = text[at];
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) break;
    value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
  }
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (count < least || value > 0x10FFFF || surrogate) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> unescape(std::string_view text) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 >= text.size()) {
      out += text[at++];
      continue;
    }
    const char c = text[at + 1];
    const size_t known = kLetters.find(c);
    if (known != std::string_view::npos || c == '\n') {  // a backslash at the end of a line joins the lines
      if (c != '\n') out += kValues[known];
      at += 2;
      continue;
    }
    const bool octal = c >= '0' && c <= '7';
    const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!octal && size == 0) {  // not an escape: the backslash stays
      out += text.substr(at, 2);
      at += 2;
      continue;
    }
    at += octal ? 1 : 2;
    const auto value = octal ? digits(text, at, 1, 3, 8) : digits(text, at, size, size, 16);
    if (!value) return std::nullopt;
    append_utf8(out, *value);
  }
  return out;
}

}  // namespace temper::templates
