#pragma once
#include <functional>
#include <memory>

#include "collectives/group.h"
#include "device/device.h"

namespace temper::collectives {

// A room that moves tensors between devices of one type registers this by the type's name ("cuda").
using MakeDeviceGroup = std::function<std::unique_ptr<Group>(Group& hosts, Device device)>;

// The same ranks with tensors on this device of each: host values travel by `hosts`, which must outlive it,
// tensors by the devices' own network. Null where `hosts` serves the device itself, or has one rank. All
// ranks call it. A kResources Error where no room serves such devices.
std::unique_ptr<Group> device_group(Group& hosts, Device device);

}  // namespace temper::collectives
