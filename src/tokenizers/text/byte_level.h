#pragma once
#include <string>
#include <string_view>

// The byte-level alphabet: each byte has a printable character. Printable Latin-1 bytes stand for
// themselves; the other 68, in order, are U+0100, U+0101, … (so a space is U+0120, "Ġ").
namespace temper::tokenizers {

char32_t spelling_of_byte(unsigned char byte);
std::string spelling_of_bytes(std::string_view bytes);

// The inverse. A spelling with any character outside the alphabet is kept as it is, in UTF-8.
std::string bytes_of_spelling(std::string_view spelling);

}  // namespace temper::tokenizers
