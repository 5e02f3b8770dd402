#pragma once
#include <string>

#include "device/device.h"

namespace temper::device {

// How a device's pool hands memory out.
enum class MemoryPolicy {
  kRegions,  // of reserved addresses, behind which memory comes and goes: they sleep, wake and can be shared
  kSeparate  // each block by itself: nothing sleeps, and nothing is shared
};

struct ChosenPolicy {
  MemoryPolicy policy = MemoryPolicy::kRegions;
  std::string by = {};  // what chose it: "TEMPER_GPU_POOL=separate"; "": it is the device's default
};

// A room whose pool can be chosen says which one was; of all others it is regions.
void register_memory_policy(DeviceType type, ChosenPolicy (*policy)(int index));
ChosenPolicy memory_policy(Device device);

}  // namespace temper::device
