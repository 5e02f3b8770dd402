#include <gtest/gtest.h>

#include "ops/expert_linear/expert_linear.h"

namespace temper::backends {
namespace {

TEST(HopperExpertLinear, RefusesUpdatesOfAnyRank) {
  const auto refusal = [](int64_t in, int64_t out) {
    HardwareFacts facts;  // of a GPU that is not here
    facts.hardware = hardware::kGpu;
    facts.compute_capability = 90;
    return ops::kernels<ops::ExpertLinear>()
        .find("hopper")
        ->accepts({DType::kBF16, in, out, 4}, facts)
        .value_or("");
  };
  const std::string why =
      "is for sizes that are multiples of 8, low-rank updates of experts may have any rank";
  EXPECT_EQ(refusal(64, 96), "");
  EXPECT_EQ(refusal(0, 0), why);
  EXPECT_EQ(refusal(60, 96), "is for sizes that are multiples of 8, this has 60 and experts of 96");
}

}  // namespace
}  // namespace temper::backends
