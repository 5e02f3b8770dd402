#include "rewards/reward.h"

#include "base/parts/registry.h"
#include "rewards/room.h"

namespace temper::rewards {

std::unique_ptr<Reward> make_reward(const RewardConfig& config, const std::string& key) {
  check(config, key);
  return registry<Room>().find(config.type)->make(config, key);
}

}  // namespace temper::rewards
