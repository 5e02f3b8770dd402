// What the kernel refuses, on GPUs that are not here. The rest is ops/attention's test.
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

namespace temper::backends::hopper {
namespace {

using ops::Attention;

std::string refusal(const Attention::Signature& signature, int capability = 90) {
  HardwareFacts facts;
  facts.hardware = hardware::kGpu;
  facts.compute_capability = capability;
  return ops::kernels<Attention>().find("hopper")->accepts(signature, facts).value_or("");
}

TEST(HopperAttention, Refuses) {
  const Attention::Signature accepted{
      .dtype = DType::kBF16, .heads = 4, .kv_heads = 2, .head_dim = 128, .window = false};
  Attention::Signature narrow = accepted, odd = accepted, wide = accepted;
  narrow.head_dim = 64;
  odd.head_dim = 96;
  wide.dtype = DType::kF32;
  EXPECT_EQ(refusal(accepted), "");
  EXPECT_EQ(refusal(narrow), "");
  EXPECT_EQ(refusal(odd), "is for head_dim 64 or 128 at compute capability 9.0, this is 96 at 9.0");
  EXPECT_EQ(refusal(accepted, 100),
            "is for head_dim 64 or 128 at compute capability 9.0, this is 128 at 10.0");
  EXPECT_EQ(refusal(wide), "dtype must be bfloat16");
}

}  // namespace
}  // namespace temper::backends::hopper
