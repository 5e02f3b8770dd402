#pragma once
#include <string>

#include "device/memory_policy.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// What besides a run's updates uses the memory of its device, and what for.
struct Colocation {
  std::string with;  // "training and rollouts take turns"; "": nothing
  std::string needs =
      {};  // the key that asks for regions that sleep or are shared: "grpo.engine.sleep"; "": none
};
Colocation colocation_of(const RunConfig& config, Device device);

// The policy of the device's pool as a run of which others share its memory states it; "" for other runs,
// which take it as it is. An Error where what the run needs cannot be had with it.
std::string stated_policy(const Colocation& colocation, Device device);

}  // namespace temper::recipes
