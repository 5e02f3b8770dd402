#include "device/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "device/host_memory.h"

namespace temper {
namespace {

std::map<DeviceType, PoolFactory>& factories() {
  static std::map<DeviceType, PoolFactory> instance;
  return instance;
}

// The number after `key` in a /proc or control-group file; -1 when it is not there.
int64_t number_in(const std::string& path, std::string_view key) {
  if (!exists(path)) return -1;
  const std::string text = read_file(path);
  const size_t at = text.find(key);
  if (at == std::string::npos) return -1;
  const size_t digit = text.find_first_of("0123456789", at + key.size());
  return digit == std::string::npos ? -1 : std::strtoll(text.c_str() + digit, nullptr, 10);
}

}  // namespace

std::string to_string(Device device) {
  static constexpr std::string_view kNames[] = {"cpu", "cuda", "npu", "counted"};
  const auto name = kNames[static_cast<size_t>(device.type)];
  return device.type == DeviceType::kCpu ? std::string(name) : fmt::format("{}:{}", name, device.index);
}

std::string_view to_string(MemoryTag tag) {
  static constexpr std::string_view kNames[] = {"weights",  "gradients", "optimizer", "activations",
                                                "kv_cache", "graphs",    "workspace", "data"};
  return kNames[static_cast<size_t>(tag)];
}

Pool& pool(Device device) {
  const auto found = factories().find(device.type);
  if (found == factories().end()) fail("this build has no {} device", to_string(device));
  return found->second(device.index);
}

void register_pool(DeviceType type, PoolFactory factory) { factories()[type] = factory; }

std::string memory_table(const MemoryUsage& usage, int64_t peak, const MemoryPlan* planned) {
  std::string out =
      fmt::format("{:<12} {:>12} {:>12} {:>12} {:>12}\n", "region", "planned", "live", "peak", "held");
  RegionUsage total{.peak = peak};
  const auto row = [&](std::string_view name, int64_t plan, const RegionUsage& r) {
    out += fmt::format("{:<12} {:>12} {:>12} {:>12} {:>12}{}\n", name, plan < 0 ? "-" : format_bytes(plan),
                       format_bytes(r.live), format_bytes(r.peak), format_bytes(r.held),
                       r.paused ? "  paused" : "");
  };
  for (size_t i = 0; i < usage.size(); ++i) {
    const int64_t plan = planned == nullptr ? -1 : planned->peaks[i];
    row(to_string(static_cast<MemoryTag>(i)), plan, usage[i]);
    total.live += usage[i].live;
    total.held += usage[i].held;
  }
  row("total", planned == nullptr ? -1 : planned->total, total);
  return out;
}

int64_t peak_resident_bytes() {
  struct rusage info {};
  getrusage(RUSAGE_SELF, &info);
  return int64_t{info.ru_maxrss} * 1024;
}

int64_t current_resident_bytes() {
  const int64_t kib = number_in("/proc/self/status", "VmRSS:");
  return kib < 0 ? 0 : kib * 1024;
}

int64_t available_host_bytes() { return device::host_memory().bytes; }

}  // namespace temper
