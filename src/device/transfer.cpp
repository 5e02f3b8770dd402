#include "device/transfer.h"

#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper {
namespace {

std::map<DeviceType, DeviceFunctions>& devices() {
  static std::map<DeviceType, DeviceFunctions> instance;
  return instance;
}

const DeviceFunctions& functions_of(Device device) {
  const auto found = devices().find(device.type);
  if (found == devices().end()) fail("this build has no room for {}", to_string(device));
  return found->second;
}

// On the CPU everything has arrived.
class ArrivedReading final : public Reading {
 public:
  explicit ArrivedReading(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  const void* wait() override { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

void register_device(DeviceType type, DeviceFunctions functions) { devices()[type] = functions; }

void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  const bool to_cpu = to_device.type == DeviceType::kCpu, from_cpu = from_device.type == DeviceType::kCpu;
  if (to_cpu && from_cpu) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  if (!to_cpu && !from_cpu && to_device.type != from_device.type)
    fail("nothing copies from {} to {}", to_string(from_device), to_string(to_device));
  functions_of(to_cpu ? from_device : to_device).transfer(to, to_device, from, from_device, bytes);
}

void clear(void* memory, Device device, int64_t bytes) {
  if (bytes == 0) return;
  if (device.type != DeviceType::kCpu) return functions_of(device).clear(memory, device, bytes);
  auto* begin = static_cast<std::byte*>(memory);
  parallel_ranges(bytes, 1 << 22, [&](int64_t first, int64_t last) {
    std::memset(begin + first, 0, static_cast<size_t>(last - first));
  });
}

std::shared_ptr<Reading> start_reading(const void* from, Device device, int64_t bytes) {
  if (device.type != DeviceType::kCpu) return functions_of(device).start_reading(from, device, bytes);
  const auto* begin = static_cast<const std::byte*>(from);
  return std::make_shared<ArrivedReading>(std::vector<std::byte>(begin, begin + bytes));
}

std::unique_ptr<Graph> capture(Device device, const std::function<void()>& work) {
  if (device.type == DeviceType::kCpu) return nullptr;
  const auto record = functions_of(device).capture;
  return record == nullptr ? nullptr : record(device, work);
}

void synchronize(Device device) {
  if (device.type != DeviceType::kCpu) functions_of(device).synchronize(device);
}

}  // namespace temper
