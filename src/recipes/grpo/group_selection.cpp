#include "recipes/grpo/group_selection.h"

#include <algorithm>

#include "losses/spread.h"

namespace temper::recipes {

int64_t GroupSelection::next_count() const {
  return std::max(wanted_ - std::ssize(groups_), (wanted_ + 1) / 2);
}

// Dynamic sampling: Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025.
// Without it groups whose rewards are all equal are kept: they count in what the loss is divided by.
void GroupSelection::add(int64_t first_group, std::span<const double> rewards) {
  const auto size = static_cast<size_t>(group_size_);
  const int64_t count = std::ssize(rewards) / group_size_;
  for (int64_t i = 0; i < count; ++i) {
    const bool spread = losses::spread_of(rewards.subspan(static_cast<size_t>(i) * size, size)).any;
    num_asked_ += 1;
    num_without_spread_ += !spread;
    if (!is_full() && (spread || !dynamic_sampling_)) groups_.push_back(first_group + i);
  }
}

int64_t GroupSelection::place_of(int64_t group) const {
  const auto found = std::find(groups_.begin(), groups_.end(), group);
  return found == groups_.end() ? -1 : found - groups_.begin();
}

}  // namespace temper::recipes
