#pragma once
#include <string>
#include <string_view>

// Unicode normalization form C. Texts are valid UTF-8.
namespace temper::tokenizers {

// How much of the text's beginning is surely in form C already, whatever follows; what is left is normalized
// on its own.
size_t composed_prefix(std::string_view text);

void append_composed(std::string& out, std::string_view text);

// As utf8proc maps a text by its options, except for characters that are newer than Unicode 9: they stay.
void append_known(std::string& out, std::string_view text, int options);

}  // namespace temper::tokenizers
