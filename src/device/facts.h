#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/parts/registry.h"
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
  std::string driver = {};            // "580.82.07 (CUDA 13.0)"
  // On-chip memory that one running instance of a kernel may use; 0: nothing limits it.
  int64_t scratch_bytes = 0;
  std::string scratch_name;           // "unified buffer"
  std::vector<std::string> packages;  // optional packages that are installed: "triton"

  bool has_package(std::string_view package) const;
};

// Optional packages that plug-ins brought, for the facts of every device.
std::set<std::string>& installed_packages();

HardwareFacts detect_cpu();

// Finds a type of device on this machine. Detectors are registered by the device's name ("cuda", or what a
// plug-in calls its own); which tables and kernels serve it is what `facts().hardware` says ("gpu").
struct Detector {
  std::function<int()>
      count;  // throws kResources with the reason when none can be used, 0 when there is none
  std::function<HardwareFacts(int index)> facts;  // of one below count(); throws when Temper cannot use it
};
Registry<Detector>& detectors();
// Facts of "cpu", "cuda" or "cuda:1". What is not a device is an error of input, a device that is not here
// one of resources.
HardwareFacts detect_hardware(std::string_view device);

// Whether the driver of NVIDIA GPUs has one on this machine, with rooms for it in this build or without.
bool has_nvidia_gpu();

// What its maker publishes for dense bfloat16 products of a device by that name, in floating-point operations
// per second; 0 where Temper's table does not have it.
double published_bf16_peak(std::string_view name);

// Facts of hardware that need not be here, by name; an unknown name is an error with the list.
HardwareFacts known_hardware(std::string_view name);
std::vector<std::string> known_hardware_names();

}  // namespace temper
