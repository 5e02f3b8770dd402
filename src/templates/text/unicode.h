#pragma once
#include <string>
#include <string_view>

// What Python's str knows about characters.
namespace temper::templates {

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);  // Nd
bool is_numeric(char32_t c);  // N
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_printable(char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string casefold(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // a letter after anything that has no case is made upper case
std::string swapcase(std::string_view text);

}  // namespace temper::templates
