// The one file here that includes utf8proc.
#include "templates/text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/text/special_casing.h"

namespace temper::templates {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool has_case(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

void put_all(std::string& out, std::u32string_view characters) {
  for (const char32_t c : characters) append_utf8(out, c);
}

void put_upper(std::string& out, char32_t c) {
  if (const SpecialCase* special = find_special_case(c))
    put_all(out, special->upper);
  else
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void put_title(std::string& out, char32_t c) {
  if (const SpecialCase* special = find_special_case(c))
    put_all(out, special->title);
  else
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

void put_lower(std::string& out, char32_t c) {
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  if (c == 0x130) append_utf8(out, 0x307);  // I with a dot above keeps it
}

// Marks and signs that stand between the letters of a word without ending it.
bool is_case_ignorable(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK ||
         std::u32string_view(
             U"'.:\u00B7\u0387\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(c) != std::u32string_view::npos;
}

// A capital sigma at the end of a word becomes the final one.
bool ends_word(std::string_view before, std::string_view after) {
  while (!before.empty() && is_case_ignorable(next_utf8(last_utf8(before)).value))
    before.remove_suffix(last_utf8(before).size());
  if (before.empty() || !has_case(next_utf8(last_utf8(before)).value)) return false;
  while (!after.empty() && is_case_ignorable(next_utf8(after).value))
    after.remove_prefix(next_utf8(after).size);
  return after.empty() || !has_case(next_utf8(after).value);
}

template <class Put>
std::string map_characters(std::string_view text, Put put) {
  const std::string_view whole = text;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    const size_t size = out.size();
    put(out, step.value);
    text.remove_prefix(step.size);
    const bool lowered = step.value == 0x3A3 && std::string_view(out).substr(size) == "\u03C3";
    const std::string_view before = whole.substr(0, whole.size() - text.size() - step.size);
    if (lowered && ends_word(before, text)) out.replace(size, std::string::npos, "\u03C2");
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

std::string casefold(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(folded, &std::free);
  if (size < 0) fail("casefold: {}", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(folded), static_cast<size_t>(size)};
}

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
