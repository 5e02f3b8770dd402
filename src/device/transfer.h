#pragma once
#include <cstdint>
#include <memory>

#include "device/graph.h"

namespace temper {

// Copies bytes between or within devices, in the order of the work of both: after what each was asked for
// before and ahead of what each is asked for later. Therefore `from` may be written to, or freed, at once,
// by the CPU or by later work of its device; when `to` is on the CPU, its bytes have arrived.
void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
// Sets bytes to zero, in the same order.
void clear(void* memory, Device device, int64_t bytes);
// Waits until a device has done everything asked of it; reports what went wrong meanwhile.
void synchronize(Device device);

// A copy that is on its way to the CPU; the device runs later work meanwhile.
class Reading {
 public:
  virtual ~Reading() = default;
  virtual const void* wait() = 0;  // the bytes, once they have arrived; valid as long as this lives
};
std::shared_ptr<Reading> start_reading(const void* from, Device device, int64_t bytes);

// What a type of device does for these; the CPU's own need no registration.
struct DeviceFunctions {
  void (*transfer)(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) = nullptr;
  void (*clear)(void* memory, Device device, int64_t bytes) = nullptr;
  void (*synchronize)(Device device) = nullptr;
  std::shared_ptr<Reading> (*start_reading)(const void* from, Device device, int64_t bytes) = nullptr;
  std::unique_ptr<Graph> (*capture)(Device device, const std::function<void()>& work) = nullptr;
};
void register_device(DeviceType type, DeviceFunctions functions);

}  // namespace temper
