#include "device/transfer.h"

#include <cstring>
#include <map>

#include "base/error.h"

namespace temper {
namespace {

std::map<DeviceType, Transfer>& transfers() {
  static std::map<DeviceType, Transfer> instance;
  return instance;
}

}  // namespace

void register_transfer(DeviceType type, Transfer function) { transfers()[type] = function; }

void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  if (to_device.type == DeviceType::kCpu && from_device.type == DeviceType::kCpu) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const DeviceType type = to_device.type == DeviceType::kCpu ? from_device.type : to_device.type;
  const auto found = transfers().find(type);
  const bool two_kinds = from_device.type != DeviceType::kCpu && from_device.type != type;
  if (found == transfers().end() || two_kinds)
    fail("nothing copies from {} to {}", to_string(from_device), to_string(to_device));
  found->second(to, to_device, from, from_device, bytes);
}

}  // namespace temper
