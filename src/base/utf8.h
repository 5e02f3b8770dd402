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

// Of valid UTF-8: the size of the code point that starts with this byte, and the code point that starts at
// `at`.
inline size_t utf8_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
inline Utf8Step valid_utf8(const char* at) {
  const auto byte = [at](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const auto tail = [&](size_t i) { return byte(i) & 0x3F; };
  const char32_t first = byte(0);
  if (first < 0x80) return {Utf8Kind::kValid, 1, first};
  if (first < 0xE0) return {Utf8Kind::kValid, 2, ((first & 0x1F) << 6) | tail(1)};
  if (first < 0xF0) return {Utf8Kind::kValid, 3, ((first & 0xF) << 12) | (tail(1) << 6) | tail(2)};
  return {Utf8Kind::kValid, 4, ((first & 7) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3)};
}

Utf8Step next_utf8(std::string_view text);          // text must not be empty
std::string_view last_utf8(std::string_view text);  // the last code point of a valid, non-empty text
void append_utf8(std::string& out, char32_t value);
std::u32string to_utf32(std::string_view text);  // invalid sequences become U+FFFD
std::string to_utf8(std::u32string_view text);
std::string replace_invalid_utf8(std::string_view text);  // one U+FFFD for each maximal subpart

}  // namespace temper
