#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "rewards/reward.h"

namespace temper::rewards {

// Without the white space at both ends, as Unicode has it. `text` is valid UTF-8.
std::string_view trimmed(std::string_view text);

// What of the answer counts, in valid UTF-8: all of it; or, with `within`, what stands between the last
// <tag> that is closed and its </tag>. None where there is no such.
std::optional<std::string> judged_text(const RewardConfig& config, const std::string& text);

// `within` must be a name.
void check_within(const RewardConfig& config, const std::string& key);

// A tag's name: not empty, without white space, '<', '>' and '/'.
bool is_tag_name(std::string_view name);

}  // namespace temper::rewards
