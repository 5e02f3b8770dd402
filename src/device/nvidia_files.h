#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

// Whether files of /dev by these names are a driver's that has a GPU. A container may have been given any of
// the machine's: nvidia3 without nvidia0.
inline bool are_of_nvidia(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](std::string_view name) {
    constexpr std::string_view kPrefix = "nvidia";
    if (!name.starts_with(kPrefix)) return false;
    name.remove_prefix(kPrefix.size());
    return name == "ctl" || (!name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos);
  });
}

}  // namespace temper
