#include "recipes/loop/colocation.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "recipes/keys/recipe.h"
#include "recipes/parts/rollout_memory.h"

namespace temper::recipes {

Colocation colocation_of(const RunConfig& config, Device device) {
  Colocation found;
  if (const Recipe& recipe = recipe_of(config); recipe.rollouts != nullptr) {
    found.with = "training and rollouts take turns";
    const std::vector<training::UpdateState> asleep = recipe.rollouts(config).asleep;
    const auto is_memory = [](training::UpdateState state) {
      return state != training::UpdateState::kCommunication;
    };
    if (std::ranges::any_of(asleep, is_memory)) found.needs = fmt::format("{}.sleep", config.recipe);
  }
  const bool is_sent = !config.exchange.to.empty() && device.type != DeviceType::kCpu &&
                       config.exchange.memory != ChunkMemory::kHost;
  if (!is_sent) return found;
  found.with += found.with.empty() ? "shared with another process" : ", shared with another process";
  found.needs += found.needs.empty() ? "exchange" : " and exchange";
  return found;
}

std::string stated_policy(const Colocation& colocation, Device device) {
  if (colocation.with.empty()) return "";
  const device::ChosenPolicy chosen = device::memory_policy(device);
  const bool regions = chosen.policy == device::MemoryPolicy::kRegions;
  if (!regions && !colocation.needs.empty())
    fail(
        "[{}] needs memory of {} in regions, which sleep and can be shared, but {} gives each block memory "
        "of its own; leave that out",
        colocation.needs, to_string(device), chosen.by);
  const std::string separate =
      regions ? "" : fmt::format("; every block is allocated separately ({})", chosen.by);
  return fmt::format("memory ({}): {}{}", to_string(device), colocation.with, separate);
}

}  // namespace temper::recipes
