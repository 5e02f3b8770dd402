#include "device/memory.h"

#include <sys/resource.h>

#include <map>

#include "base/error.h"
#include "base/text.h"
#include "device/host_memory.h"

namespace temper {
namespace {

std::map<DeviceType, PoolFactory>& factories() {
  static std::map<DeviceType, PoolFactory> instance;
  return instance;
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
  return out +
         "planned: the peak by the memory plan, or - without one; live: in use now; peak: the most that was "
         "in "
         "use; held: taken from the device, in use or not\n";
}

int64_t peak_resident_bytes() {
  struct rusage info {};
  getrusage(RUSAGE_SELF, &info);
  return int64_t{info.ru_maxrss} * 1024;
}

int64_t current_resident_bytes() { return device::resident_bytes(); }

int64_t available_host_bytes() { return device::host_memory().bytes; }

}  // namespace temper
