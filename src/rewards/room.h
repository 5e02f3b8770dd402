#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rewards/reward.h"

namespace temper::rewards {

// What rooms register. `key` is that of the configuration, for messages.
struct Room {
  std::vector<std::string_view> keys;  // of RewardConfig, besides type, name and weight, that it reads
  void (*check)(const RewardConfig& config, const std::string& key);
  std::unique_ptr<Reward> (*make)(const RewardConfig& config, const std::string& key);
};

}  // namespace temper::rewards
