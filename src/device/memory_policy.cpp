#include "device/memory_policy.h"

#include <map>

namespace temper::device {
namespace {

std::map<DeviceType, ChosenPolicy (*)(int)>& all_policies() {
  static std::map<DeviceType, ChosenPolicy (*)(int)> all;
  return all;
}

}  // namespace

void register_memory_policy(DeviceType type, ChosenPolicy (*policy)(int index)) {
  all_policies()[type] = policy;
}

ChosenPolicy memory_policy(Device device) {
  const auto found = all_policies().find(device.type);
  return found == all_policies().end() ? ChosenPolicy{} : found->second(device.index);
}

}  // namespace temper::device
