#include "device/cpu_features.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace temper {
namespace {

// In the order in which limits cut them off.
enum class Level { kSse, kAvx, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// The limits that oneDNN knows (2.6 to 3.x), by what is left of the sets that are used here.
struct Limit {
  std::string_view value;
  Level level;
};
constexpr Limit kLimits[] = {{"SSE41", Level::kSse},
                             {"AVX", Level::kAvx},
                             {"AVX2", Level::kAvx2},
                             {"AVX2_VNNI", Level::kAvx2},
                             {"AVX2_VNNI_2", Level::kAvx2},
                             {"AVX512_CORE", Level::kAvx512},
                             {"AVX512_CORE_VNNI", Level::kAvx512},
                             {"AVX512_CORE_BF16", Level::kAvx512Bf16},
                             {"AVX512_CORE_FP16", Level::kAvx512Bf16},
                             {"AVX10_1_512", Level::kAvx512Bf16}};

Level level_of(std::string_view limit) {
  std::string upper(limit);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const Limit& known : kLimits)
    if (known.value == upper) return known.level;
  return Level::kAmx;
}

#ifdef __x86_64__

// Intel's manual, volume 2, CPUID: the leaf, its sub-leaf, the register (a, b, c, d) and the bit. The system
// has to save the registers, too: bits of XCR0, volume 1, chapter 13.
struct Feature {
  const char* name;
  Level level;
  unsigned leaf, subleaf, reg, bit;
  uint64_t saved;
};
constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
constexpr Feature kFeatures[] = {
    {"avx2", Level::kAvx2, 7, 0, 1, 5, kYmm},        {"fma", Level::kAvx2, 1, 0, 2, 12, kYmm},
    {"f16c", Level::kAvx2, 1, 0, 2, 29, kYmm},       {"avx512f", Level::kAvx512, 7, 0, 1, 16, kZmm},
    {"avx512bw", Level::kAvx512, 7, 0, 1, 30, kZmm}, {"avx512dq", Level::kAvx512, 7, 0, 1, 17, kZmm},
    {"avx512vl", Level::kAvx512, 7, 0, 1, 31, kZmm}, {"avx512_bf16", Level::kAvx512Bf16, 7, 1, 0, 5, kZmm},
    {"amx_bf16", Level::kAmx, 7, 0, 3, 22, kTiles},  {"amx_tile", Level::kAmx, 7, 0, 3, 24, kTiles}};

uint64_t saved_registers() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsxsave = 1u << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool offers(const Feature& feature, uint64_t saved) {
  std::array<unsigned, 4> regs{};
  return (saved & feature.saved) == feature.saved &&
         __get_cpuid_count(feature.leaf, feature.subleaf, &regs[0], &regs[1], &regs[2], &regs[3]) != 0 &&
         (regs[feature.reg] >> feature.bit & 1) != 0;
}

#endif

}  // namespace

std::vector<std::string> cpu_features_within([[maybe_unused]] std::string_view limit) {
  std::vector<std::string> found;
#ifdef __x86_64__
  const uint64_t saved = saved_registers();
  const Level most = level_of(limit);
  for (const Feature& feature : kFeatures)
    if (feature.level <= most && offers(feature, saved)) found.emplace_back(feature.name);
#endif
  return found;
}

const std::vector<std::string>& cpu_features() {
  static const std::vector<std::string> features = [] {
    // oneDNN reads the second name, too, which is older.
    const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
    if (limit == nullptr) limit = std::getenv("DNNL_MAX_CPU_ISA");
    return cpu_features_within(limit == nullptr ? "" : limit);
  }();
  return features;
}

bool has_cpu_feature(std::string_view name) {
  const std::vector<std::string>& features = cpu_features();
  return std::find(features.begin(), features.end(), name) != features.end();
}

}  // namespace temper
