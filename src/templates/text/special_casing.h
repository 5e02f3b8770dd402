#pragma once
#include <string_view>

namespace temper::templates {

struct SpecialCase {
  char32_t letter;
  std::u32string_view upper, title;
};
const SpecialCase* find_special_case(char32_t c);  // null for most

}  // namespace temper::templates
