#pragma once
#include <string_view>

namespace temper {

// How text writes a character that XML and HTML reserve everywhere: "&amp;"; empty: as it is.
inline std::string_view xml_entity(char c) {
  return c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : "";
}

}  // namespace temper
