#include "base/error.h"
#include "base/text.h"
#include "device/facts.h"

namespace temper {
namespace {

struct Known {
  std::string_view id;
  HardwareFacts facts;
};

HardwareFacts cpu(const char* name, bool native_bf16, std::vector<std::string> features) {
  HardwareFacts facts;
  facts.name = name;
  facts.native_bf16 = native_bf16;
  facts.features = std::move(features);
  return facts;
}

// Shared memory that one block may ask for, by compute capability (CUDA C++ Programming Guide, table of
// technical specifications).
HardwareFacts gpu(const char* name, int capability, int64_t shared_kib) {
  HardwareFacts facts;
  facts.hardware = hardware::kGpu;
  facts.name = name;
  facts.native_bf16 = true;
  facts.compute_capability = capability;
  facts.scratch_bytes = shared_kib << 10;
  facts.scratch_name = "shared memory of a multiprocessor";
  return facts;
}

// The vector cores' unified buffer is 192 KiB (Ascend C documentation of the 910B).
HardwareFacts npu(const char* name) {
  HardwareFacts facts;
  facts.hardware = hardware::kNpu;
  facts.name = name;
  facts.native_bf16 = true;
  facts.scratch_bytes = 192 << 10;
  facts.scratch_name = "unified buffer";
  return facts;
}

const std::vector<Known>& all_known() {
  static const std::vector<Known> known{
      {"ascend-910b", npu("Ascend 910B")},
      {"cpu-amx",
       cpu("a processor with AMX", true, {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16"})},
      {"cpu-avx2", cpu("a processor with AVX2", false, {"avx2", "fma", "f16c"})},
      {"cpu-avx512", cpu("a processor with AVX-512", false, {"avx2", "fma", "f16c", "avx512f"})},
      {"cpu-avx512-bf16",
       cpu("a processor with AVX-512 BF16", true, {"avx2", "fma", "f16c", "avx512f", "avx512_bf16"})},
      {"cuda-sm80", gpu("NVIDIA A100", 80, 163)},
      {"cuda-sm89", gpu("NVIDIA L40S", 89, 99)},
      {"cuda-sm90", gpu("NVIDIA H100", 90, 227)},
      {"cuda-sm100", gpu("NVIDIA B200", 100, 227)}};
  return known;
}

}  // namespace

std::vector<std::string> known_hardware_names() {
  std::vector<std::string> names;
  for (const Known& known : all_known()) names.emplace_back(known.id);
  return names;
}

HardwareFacts known_hardware(std::string_view name) {
  for (const Known& known : all_known())
    if (known.id == name) return known.facts;
  fail("[--hardware] '{}' is not known; use one of [{}]", name, join(known_hardware_names()));
}

}  // namespace temper
