#include "collectives/device_group.h"

#include "base/parts/registry.h"

namespace temper::collectives {

std::unique_ptr<Group> device_group(Group& hosts, Device device) {
  if (hosts.is_alone() || device.type == DeviceType::kCpu) return nullptr;
  const MakeDeviceGroup* make = nullptr;
  if (device.type == DeviceType::kCuda) make = registry<MakeDeviceGroup>().find("cuda");
  if (make == nullptr)
    fail_resources(
        "[collectives] no room moves tensors between ranks on {}; run one rank, or ranks on the CPU",
        to_string(device));
  return (*make)(hosts, device);
}

}  // namespace temper::collectives
