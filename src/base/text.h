#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

// The candidate nearest to `name` by edit distance (adjacent swaps count once), or "" if none is near: at
// most half of its letters away, and at most `limit`.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates,
                         size_t limit = SIZE_MAX);

std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");
// At most `limit` of the parts, then a count: "a, b and 3 more". For lists that come from others.
std::string list_some(const std::vector<std::string>& parts, std::string_view separator = ", ",
                      size_t limit = 10);
std::string format_bytes(int64_t bytes);      // "1.50 GiB", "12 B"
std::string format_duration(double seconds);  // "1h 02m", "3m 07s", "4.2s"

// The number of bytes of the longest valid UTF-8 prefix of `text` (all of it when valid).
size_t valid_utf8_prefix(std::string_view text);

}  // namespace temper
