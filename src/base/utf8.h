#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace temper {

// What stands at the front of a text.
enum class Utf8Kind { kValid, kInvalid, kIncomplete };  // incomplete: the text ends inside a sequence

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::kValid;
  size_t size = 0;     // bytes; for invalid and incomplete ones the maximal subpart (Unicode 15, section 3.9)
  char32_t value = 0;  // the code point, U+FFFD when not valid
};

Utf8Step next_utf8(std::string_view text);          // text must not be empty
std::string_view last_utf8(std::string_view text);  // the last code point of a valid, non-empty text
void append_utf8(std::string& out, char32_t value);
std::u32string to_utf32(std::string_view text);  // invalid sequences become U+FFFD
std::string to_utf8(std::u32string_view text);
std::string replace_invalid_utf8(std::string_view text);  // one U+FFFD for each maximal subpart

}  // namespace temper
