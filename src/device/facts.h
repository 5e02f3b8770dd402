#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "device/device.h"

namespace temper {

// Classes of hardware. A plug-in may bring another: the name is all that identifies one.
namespace hardware {
inline constexpr std::string_view kCpu = "cpu", kGpu = "gpu", kNpu = "npu";
}

// What a kernel's choice may depend on. A plain struct: it can be filled in for hardware that is not here.
struct HardwareFacts {
  std::string hardware{hardware::kCpu};
  Device device = {};  // where it is, when it is here
  std::string name;    // "AMD EPYC 9B45", "NVIDIA H200"
  int cores = 1;
  int64_t memory_bytes = 0;
  bool native_bf16 = false;           // matrix products with bf16 inputs in hardware
  std::vector<std::string> features;  // "avx2", "avx512f", "avx512_bf16", "amx_bf16"
  int compute_capability = 0;         // of a GPU: 90 for 9.0
  // On-chip memory that one running instance of a kernel may use; 0: nothing limits it.
  int64_t scratch_bytes = 0;
  std::string scratch_name;           // "unified buffer"
  std::vector<std::string> packages;  // optional packages that are installed: "triton"

  bool has_package(std::string_view package) const;
};

// Optional packages that plug-ins brought, for the facts of every device.
std::set<std::string>& installed_packages();

HardwareFacts detect_cpu();

// The first device of a class of hardware that a plug-in brought; nothing where there is none.
using Detector = std::function<std::optional<HardwareFacts>()>;
Registry<Detector>& detectors();
// Facts of "cpu" or of a class with a detector. An error when there is no such class or device.
HardwareFacts detect_hardware(std::string_view hardware);

// Facts of hardware that need not be here, by name; an unknown name is an error with the list.
HardwareFacts known_hardware(std::string_view name);
std::vector<std::string> known_hardware_names();

}  // namespace temper
