// The one file here that includes utf8proc.
#include "templates/unicode.h"

#include <utf8proc.h>

#include <utility>

#include "base/utf8.h"

namespace temper::templates {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool has_case(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

void put_upper(std::string& out, char32_t c) {
  if (c == 0xDF)
    out += "SS";  // the one common letter whose upper case is two
  else
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void put_title(std::string& out, char32_t c) {
  if (c == 0xDF)
    out += "Ss";
  else
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

void put_lower(std::string& out, char32_t c) {
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

template <class Put>
std::string map_characters(std::string_view text, Put put) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    put(out, step.value);
    text.remove_prefix(step.size);
  }
  return out;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_printable(char32_t c) {
  const auto kind = category(c);
  return c == ' ' || (kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
}

std::string upper(std::string_view text) { return map_characters(text, put_upper); }
std::string lower(std::string_view text) { return map_characters(text, put_lower); }

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text, [&](std::string& out, char32_t c) {
    if (std::exchange(first, false))
      put_title(out, c);
    else
      put_lower(out, c);
  });
}

std::string title(std::string_view text) {
  bool after_cased = false;
  return map_characters(text, [&](std::string& out, char32_t c) {
    if (after_cased)
      put_lower(out, c);
    else
      put_title(out, c);
    after_cased = has_case(c);
  });
}

std::string swapcase(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) {
    if (is_upper(c))
      put_lower(out, c);
    else if (is_lower(c))
      put_upper(out, c);
    else
      append_utf8(out, c);
  });
}

}  // namespace temper::templates
