#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace temper {

enum class HardwareClass : uint8_t { kCpu, kGpu, kNpu };
std::string_view to_string(HardwareClass hardware);

// What a kernel's choice may depend on. A plain struct: it can be filled in for hardware that is not here.
struct HardwareFacts {
  HardwareClass hardware = HardwareClass::kCpu;
  std::string name;            // "AMD EPYC 9B45", "NVIDIA H200"
  int cores = 1;
  int64_t memory_bytes = 0;
  bool native_bf16 = false;    // matrix products with bf16 inputs in hardware
  std::vector<std::string> features;  // "avx2", "avx512f", "avx512_bf16", "amx_bf16"
};

HardwareFacts detect_cpu();

}  // namespace temper
