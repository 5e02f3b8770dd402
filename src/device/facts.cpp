#include "device/facts.h"

#include <algorithm>
#include <sstream>

#include "base/files.h"
#include "base/numbers.h"
#include "base/parts/rooms.h"
#include "base/text.h"
#include "base/threads/threads.h"
#include "device/cpu_features.h"
#include "device/memory.h"
#include "device/nvidia_files.h"

namespace temper {

bool HardwareFacts::has_package(std::string_view package) const {
  return std::find(packages.begin(), packages.end(), package) != packages.end();
}

std::set<std::string>& installed_packages() {
  static std::set<std::string> packages;
  return packages;
}

bool has_nvidia_gpu() { return is_directory("/dev") && are_of_nvidia(list_directory("/dev")); }

Registry<Detector>& detectors() { return registry<Detector>(); }

namespace {

struct DeviceName {
  std::string_view type;
  int index = 0;
};

DeviceName parse_device(std::string_view name) {
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return {name};
  const auto index = parse_integer_of<int>(name.substr(colon + 1));
  if (index.value_or(-1) < 0)
    fail("[device] '{}' has no number after the colon; write {} or, for the second one, {}:1", name,
         name.substr(0, colon), name.substr(0, colon));
  return {name.substr(0, colon), *index};
}

// The device's name is known to everyone, its room need not be in this build.
constexpr std::string_view kCuda = "cuda";

const Detector& detector_of(std::string_view type) {
  if (const Detector* found = detectors().find(type)) return *found;
  if (type == kCuda)
    fail_resources(
        "[device] this build has no CUDA rooms{}; build it again with a CUDA toolkit, or use device: cpu",
        why_left_out("device", kCuda));
  std::vector<std::string> known{std::string(hardware::kCpu), std::string(kCuda)};
  for (const auto& entry : detectors().entries())
    if (entry.name != kCuda) known.push_back(entry.name);
  fail("[device] '{}' is not known; use one of [{}]", type, join(known));
}

}  // namespace

HardwareFacts detect_hardware(std::string_view device) {
  const auto [type, index] = parse_device(device);
  if (type == hardware::kCpu) {
    if (index > 0) fail("[device] '{}': there is one cpu; use device: cpu", device);
    return detect_cpu();
  }
  const Detector& detector = detector_of(type);
  const int count = detector.count();
  if (count == 0) fail_resources("[device] no device of '{}' was found on this machine", type);
  if (index >= count)
    fail_resources(
        "[device] there is no {}:{}; this machine has {}", type, index,
        count == 1 ? fmt::format("only {}:0", type) : fmt::format("{0}:0 to {0}:{1}", type, count - 1));
  HardwareFacts found = detector.facts(index);
  found.packages.assign(installed_packages().begin(), installed_packages().end());
  return found;
}

HardwareFacts detect_cpu() {
  HardwareFacts facts;
  facts.packages.assign(installed_packages().begin(), installed_packages().end());
  facts.cores = num_threads();
  facts.memory_bytes = available_host_bytes();
  facts.features = cpu_features();
  facts.native_bf16 = has_cpu_feature("avx512_bf16") || has_cpu_feature("amx_bf16");
  std::istringstream lines(exists("/proc/cpuinfo") ? read_file("/proc/cpuinfo") : std::string());
  for (std::string line; std::getline(lines, line) && !line.empty();)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      facts.name = line.substr(line.find(": ") + 2);
  return facts;
}

}  // namespace temper
