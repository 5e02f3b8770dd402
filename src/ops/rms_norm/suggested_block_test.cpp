// Blocks that are suggested for hardware whose kernels a plug-in brings.
#include <gtest/gtest.h>

#include <utility>

#include "ops/resolve.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::ops {
namespace {

// Where a plug-in has brought the kernel that the family does not take.
TEST(SuggestedBlock, LeavesOutWhatTheFamilyDoesNotTake) {
  auto kernels_of_npu = kernels<RmsNorm>();
  kernels_of_npu.add("npu", {.hardware = hardware::kNpu, .accepts = accept_all<RmsNorm::Signature>});
  std::swap(kernels<RmsNorm>(), kernels_of_npu);
  const HardwareFacts npu = known_hardware("ascend-910b");
  const std::string of_all = suggested_block(npu), of_family = suggested_block(npu, "deepseek_v3");
  std::swap(kernels<RmsNorm>(), kernels_of_npu);
  EXPECT_NE(of_all.find("    rms_norm_implementation: npu\n"), std::string::npos) << of_all;
  EXPECT_NE(of_family.find("    rms_norm_implementation: eager\n"), std::string::npos) << of_family;
}

}  // namespace
}  // namespace temper::ops
