#include "device/facts.h"
#include "device/nvidia_files.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/parts/rooms.h"
#include "device/cpu_features.h"

namespace temper {
namespace {

TEST(Facts, DevicesAreFoundByNameAndNumber) {
  EXPECT_EQ(detect_hardware("cpu").hardware, hardware::kCpu);
  detectors().add("pair", {[] { return 2; },
                           [](int index) {
                             HardwareFacts facts;
                             facts.hardware = "card";  // the device's name need not be the class of hardware
                             facts.cores = 10 + index;
                             return facts;
                           }});
  detectors().add("absent", {[] { return 0; }, nullptr});
  EXPECT_EQ(detect_hardware("pair").cores, 10);
  EXPECT_EQ(detect_hardware("pair:1").cores, 11);
  EXPECT_EQ(detect_hardware("pair:1").hardware, "card");
  const auto error_of = [](std::string_view device) {
    try {
      detect_hardware(device);
    } catch (const Error& error) {
      return error;
    }
    return Error("none", ErrorKind::kDefect);
  };
  EXPECT_EQ(error_of("card").kind(), ErrorKind::kInput);
  EXPECT_EQ(error_of("pair:2").kind(), ErrorKind::kResources);
  EXPECT_STREQ(error_of("pair:2").what(), "[device] there is no pair:2; this machine has pair:0 to pair:1");
  EXPECT_EQ(error_of("absent").kind(), ErrorKind::kResources);
  for (const char* name : {"pair:", "pair:x", "pair:1x", "pair:-1", "pair:99999999999"})
    EXPECT_EQ(error_of(name).kind(), ErrorKind::kInput) << name;
  if (detectors().find("cuda") == nullptr) {
    EXPECT_EQ(
        std::string(error_of("cuda:1").what()),
        fmt::format("[device] this build has no CUDA rooms{}; build it again with a CUDA toolkit, or use "
                    "device: cpu",
                    why_left_out("device", "cuda")));
    EXPECT_NE(why_left_out("device", "cuda").find("make build"), std::string::npos);
  }
}

TEST(Facts, AnyOfAMachinesGpusIsOne) {
  for (const char* name : {"nvidia0", "nvidia3", "nvidia12", "nvidiactl"})
    EXPECT_TRUE(are_of_nvidia({"null", name, "zero"})) << name;
  for (const char* name : {"nvidia", "nvidia-uvm", "nvidia-caps", "nvidia0x", "video0"})
    EXPECT_FALSE(are_of_nvidia({"null", name})) << name;
  EXPECT_FALSE(are_of_nvidia({}));
}

TEST(Facts, PublishedPeaksAreOfExactlyThatDevice) {
  EXPECT_EQ(published_bf16_peak("NVIDIA H200"), 989e12);
  EXPECT_EQ(published_bf16_peak("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(published_bf16_peak("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(published_bf16_peak("NVIDIA H200 NVL"), 0);
  EXPECT_EQ(published_bf16_peak("NVIDIA H100 PCIe"), 0);
}

// A limit cuts off whole levels, whatever the processor has; what it leaves is what the processor has.
TEST(Facts, LimitsOfInstructionSets) {
  const std::vector<std::string> all = cpu_features_within("");
  const auto has = [](const std::vector<std::string>& features, const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  EXPECT_TRUE(cpu_features_within("SSE41").empty());
  for (const char* limit : {"AVX2", "avx2", "AVX512_CORE", "AVX512_CORE_BF16", "ALL"}) {
    const std::vector<std::string> left = cpu_features_within(limit);
    EXPECT_EQ(has(left, "avx2"), has(all, "avx2")) << limit;
    const bool vectors = std::string_view(limit).starts_with("AVX512") || std::string_view(limit) == "ALL";
    EXPECT_EQ(has(left, "avx512f"), vectors && has(all, "avx512f")) << limit;
  }
  EXPECT_FALSE(has(cpu_features_within("AVX512_CORE"), "avx512_bf16"));
  EXPECT_FALSE(has(cpu_features_within("AVX512_CORE_BF16"), "amx_bf16"));
}

}  // namespace
}  // namespace temper
