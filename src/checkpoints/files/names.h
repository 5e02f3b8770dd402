#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

// How errors speak of names, and which names may become files.
namespace temper::checkpoints {

// A name that stays inside its folder: not empty, '.' or '..', without '/', '\' or control characters.
bool is_plain_name(std::string_view name);

// The candidate nearest to a tensor's name, or "". Names with the same numbers (layer, expert) are preferred,
// and the search is bounded, so that a hundred thousand candidates do not delay the error.
std::string nearest_tensor(std::string_view name, const std::vector<std::string>& candidates);

using temper::list_some;

}  // namespace temper::checkpoints
