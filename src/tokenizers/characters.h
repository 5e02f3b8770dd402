#pragma once

// What Unicode says of single characters.
namespace temper::tokenizers {

bool is_white_space(char32_t c);
bool is_mark(char32_t c);  // general categories Mn, Mc, Me

}  // namespace temper::tokenizers
