#pragma once
#include <string>
#include <string_view>
#include <vector>

// How errors speak of names, and which names may become files.
namespace temper::checkpoints {

// A name that stays inside its folder: not empty, '.' or '..', without '/', '\' or control characters.
bool is_plain_name(std::string_view name);

// The candidate nearest to a tensor's name, or "". Names with the same numbers (layer, expert) are preferred,
// and the search is bounded, so that a hundred thousand candidates do not delay the error.
std::string nearest_tensor(std::string_view name, const std::vector<std::string>& candidates);

// At most `limit` of the parts, then a count: "a, b and 3 more".
std::string list_some(const std::vector<std::string>& parts, std::string_view separator = ", ",
                      size_t limit = 10);

}  // namespace temper::checkpoints
