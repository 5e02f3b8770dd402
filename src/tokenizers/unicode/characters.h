#pragma once
#include <string>

// What Unicode says of single characters.
namespace temper::tokenizers {

bool is_white_space(char32_t c);
bool is_mark(char32_t c);  // general categories Mn, Mc, Me

// Whether Unicode 10 or later gave it a combining class, a composition or a decomposition, for which the
// tables of the `tokenizers` library (Unicode 9) have none: there it neither moves nor changes.
bool is_newer(char32_t c);

// The items of a class of a pattern: the word characters of Rust's regular expressions (UTS #18).
const std::string& word_items();

}  // namespace temper::tokenizers
