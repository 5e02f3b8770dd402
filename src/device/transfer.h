#pragma once
#include <cstdint>

#include "device/device.h"

namespace temper {

// Copies bytes between or within devices, in the order of the device's work: after what was asked of it
// before and ahead of what comes later. `from` may be reused at once; when `to` is on the CPU, its bytes have
// arrived.
void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
// Sets bytes to zero, in the same order.
void clear(void* memory, Device device, int64_t bytes);
// Waits until a device has done everything asked of it; reports what went wrong meanwhile.
void synchronize(Device device);

// What a type of device does for these; the CPU's own need no registration.
struct DeviceFunctions {
  void (*transfer)(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) = nullptr;
  void (*clear)(void* memory, Device device, int64_t bytes) = nullptr;
  void (*synchronize)(Device device) = nullptr;
};
void register_device(DeviceType type, DeviceFunctions functions);

}  // namespace temper
