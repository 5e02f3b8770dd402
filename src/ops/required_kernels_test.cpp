// The registered kernels compared with the table of what must bind, on hardware that this machine need not
// have.
#include "tests/support/required_kernels.h"

#include <gtest/gtest-spi.h>

#include "base/text.h"
#include "tests/support/op_testing.h"

namespace temper::op_testing {
namespace {

// An op of this test alone, whose fields and names are those of swiglu on a CPU.
struct Doubling {
  static constexpr std::string_view kName = "doubling", kField = "swiglu_mlp";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t width = 0;
  };
  using Forward = int();
  using Backward = void();
  using Compose = int();
};

bool refuses_everything = false;

ops::Refusal accepts_float32(const Doubling::Signature& s, const HardwareFacts&) {
  if (refuses_everything) return "is out of order";
  if (s.dtype != DType::kF32) return "dtype must be float32";
  return std::nullopt;
}

void register_doubling() {
  auto& kernels = ops::kernels<Doubling>();
  if (kernels.find("simd") != nullptr) return;
  kernels.add("simd", {.accepts = accepts_float32, .forward = [] { return 2; }});
  kernels.add(ops::kEager, {.accepts = ops::accept_all<Doubling::Signature>, .compose = [] { return 2; }});
}

KernelTable<Doubling> doubling_table(std::vector<DType> dtypes) {
  return {{.width = 64}, {DType::kF32, DType::kBF16}, {{"simd", "plugin", {hardware::kCpu}, dtypes}}};
}

std::vector<HardwareFacts> all_hardware() {
  HardwareFacts plain;
  plain.name = "a processor without AVX2";
  std::vector<HardwareFacts> all{facts(), plain};
  for (const std::string& name : known_hardware_names()) all.push_back(known_hardware(name));
  return all;
}

TEST(RequiredKernels, EveryLineBindsAndNothingElseDoes) {
  for (const HardwareFacts& hardware : all_hardware())
    for (const RequiredOp& op : required_ops()) {
      const auto found = op.differences(hardware);
      EXPECT_TRUE(found.empty()) << join(found, "\n");
    }
}

TEST(RequiredKernels, EveryOpAndKernelHasALine) {
  std::set<std::string, std::less<>> ops_named;
  for (const RequiredOp& op : required_ops()) {
    ops_named.emplace(op.name);
    EXPECT_EQ(join(op.without_line(), ", "), "");
  }
  for (const auto& [name, op] : ops::op_infos().entries())
    EXPECT_TRUE(ops_named.contains(name)) << name << "'s test has no table of RequiredKernels";
}

TEST(RequiredKernels, AKernelThatRefusesEverythingIsFound) {
  register_doubling();
  required_table<Doubling>() = doubling_table({DType::kF32});
  const HardwareFacts here = known_hardware("cpu-avx2");
  EXPECT_EQ(differences(doubling_table({DType::kF32}), here), std::vector<std::string>{});
  EXPECT_EQ(bind_every_kernel<Doubling>({DType::kF32, 64}, here).size(), 2u);
  refuses_everything = true;
  const std::vector<std::string> found = differences(doubling_table({DType::kF32}), here);
  EXPECT_NONFATAL_FAILURE(bind_every_kernel<Doubling>({DType::kF32, 64}, known_hardware("cpu-avx2")),
                          "doubling simd must accept this signature in float32");
  refuses_everything = false;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(
      found[0],
      "doubling float32 on a processor with AVX2, when written: expected 'simd', found "
      "'[model.ops_implementation] swiglu_mlp_implementation=simd cannot run: is out of order. Set it to "
      "one of [eager]'");
  EXPECT_EQ(found[1],
            "doubling float32 on a processor with AVX2, by default: expected 'simd', found 'eager'");
}

TEST(RequiredKernels, WhatTheTableLacksOrHasTooMuchIsFound) {
  register_doubling();
  const HardwareFacts here = known_hardware("cpu-avx2");
  EXPECT_EQ(differences(doubling_table({}), here).size(), 2u);                           // float32 binds
  EXPECT_EQ(differences(doubling_table({DType::kF32, DType::kBF16}), here).size(), 2u);  // bfloat16 does not
}

}  // namespace
}  // namespace temper::op_testing
