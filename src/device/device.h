#pragma once
#include <cstdint>
#include <string>

namespace temper {

enum class DeviceType : uint8_t { kCpu, kCuda, kNpu };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);  // "cpu", "cuda:0"

}  // namespace temper
