#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace temper::templates {

// The value of what stands between a string's quotes, with Python's escapes; nullopt when one is broken.
std::optional<std::string> unescape(std::string_view text);

}  // namespace temper::templates
