#pragma once
#include <cstdint>
#include <string>

namespace temper {

// kCounted computes nothing and has no memory behind its addresses: work on it only counts what it takes, for
// plans of memory. Its index 0 represents a CPU, 1 a device with memory of its own.
enum class DeviceType : uint8_t { kCpu, kCuda, kNpu, kCounted };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);  // "cpu", "cuda:0"

inline bool only_counts(Device device) { return device.type == DeviceType::kCounted; }
// Whether a device has memory of its own, apart from the CPU's, or represents one that has.
inline bool is_apart(Device device) {
  return device.type != DeviceType::kCpu && (!only_counts(device) || device.index > 0);
}

}  // namespace temper
