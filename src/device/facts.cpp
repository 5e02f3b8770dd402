#include "device/facts.h"

#include <algorithm>
#include <sstream>

#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "device/memory.h"

namespace temper {

bool HardwareFacts::has_package(std::string_view package) const {
  return std::find(packages.begin(), packages.end(), package) != packages.end();
}

std::set<std::string>& installed_packages() {
  static std::set<std::string> packages;
  return packages;
}

Registry<Detector>& detectors() { return registry<Detector>(); }

HardwareFacts detect_hardware(std::string_view hardware) {
  if (hardware == hardware::kCpu) return detect_cpu();
  std::vector<std::string> known{std::string(hardware::kCpu)};
  for (const auto& entry : detectors().entries()) known.push_back(entry.name);
  const Detector* detector = detectors().find(hardware);
  if (detector == nullptr) fail("[device] '{}' is not known; use one of [{}]", hardware, join(known));
  const std::optional<HardwareFacts> facts = (*detector)();
  if (!facts) fail("[device] no device of '{}' was found on this machine", hardware);
  HardwareFacts found = *facts;
  found.packages.assign(installed_packages().begin(), installed_packages().end());
  return found;
}

HardwareFacts detect_cpu() {
  HardwareFacts facts;
  facts.packages.assign(installed_packages().begin(), installed_packages().end());
  facts.cores = num_threads();
  facts.memory_bytes = available_host_bytes();
  std::istringstream lines(exists("/proc/cpuinfo") ? read_file("/proc/cpuinfo") : std::string());
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    const std::string value = line.find(": ") == std::string::npos ? "" : line.substr(line.find(": ") + 2);
    if (line.rfind("model name", 0) == 0) facts.name = value;
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream flags(value);
    for (std::string flag; flags >> flag;)
      if (flag == "avx2" || flag == "fma" || flag == "f16c" || flag.rfind("avx512", 0) == 0 ||
          flag.rfind("amx", 0) == 0) {
        facts.features.push_back(flag);
        facts.native_bf16 = facts.native_bf16 || flag == "avx512_bf16" || flag == "amx_bf16";
      }
  }
  return facts;
}

}  // namespace temper
