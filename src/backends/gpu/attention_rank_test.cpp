// Which kernel of attention is the best on a GPU that need not be here, and what a build without it says.
#include <gtest/gtest.h>

#include <utility>

#include "backends/gpu/attention_shapes.h"
#include "ops/selection.h"

namespace temper::backends {
namespace {

using ops::Attention;

constexpr Attention::Signature kUsual{.dtype = DType::kBF16, .heads = 8, .kv_heads = 2, .head_dim = 128};

Attention::Signature with_dtype(DType dtype) {
  Attention::Signature changed = kUsual;
  changed.dtype = dtype;
  return changed;
}
Attention::Signature with_sinks() {
  Attention::Signature changed = kUsual;
  changed.sinks = true;
  return changed;
}
Attention::Signature with_widths(int64_t keys, int64_t values) {
  Attention::Signature changed = kUsual;
  changed.head_dim = keys;
  changed.value_dim = values;
  return changed;
}

std::optional<ops::Better> better_than_cuda(const Attention::Signature& signature, const char* hardware) {
  const auto& kernel = *ops::kernels<Attention>().find("cuda");
  return kernel.better(signature, known_hardware(hardware));
}

TEST(AttentionRank, CudnnIsBetterWhereItAccepts) {
  for (const char* hardware : {"cuda-sm90", "cuda-sm100"}) {
    const auto better = better_than_cuda(kUsual, hardware);
    ASSERT_TRUE(better) << hardware;
    EXPECT_EQ(better->provider, "cudnn");
    EXPECT_NE(better->cost.find("times slower"), std::string_view::npos);
  }
  EXPECT_TRUE(better_than_cuda(with_widths(192, 128), "cuda-sm90"));
  EXPECT_FALSE(better_than_cuda(kUsual, "cuda-sm80"));
  EXPECT_FALSE(better_than_cuda(with_dtype(DType::kF32), "cuda-sm90"));
  EXPECT_FALSE(better_than_cuda(with_sinks(), "cuda-sm90"));
  EXPECT_FALSE(better_than_cuda(with_widths(192, 128), "cuda-sm100"));
}

// The registry as it is in a build that has no headers of cuDNN's front end.
class WithoutCudnn : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [provider, kernel] : ops::kernels<Attention>().entries())
      if (!provider.starts_with("cudnn")) kernels_.add(provider, kernel);
    std::swap(ops::kernels<Attention>(), kernels_);
  }
  void TearDown() override { std::swap(ops::kernels<Attention>(), kernels_); }

  static ops::Choice choice(const std::vector<Attention::Signature>& uses, const char* hardware,
                            bool strict = false) {
    ops::OpsConfig config;
    config.strict = strict;
    ops::Binder binder(config, known_hardware(hardware));
    binder.bind<Attention>(uses);
    return binder.finish().choices().at(0);
  }

 private:
  Registry<ops::Kernel<Attention>> kernels_;
};

TEST_F(WithoutCudnn, WhatItWouldTakeIsBehindIt) {
  const ops::Choice usual = choice({kUsual}, "cuda-sm90");
  EXPECT_EQ(usual.provider, "cuda");
  ASSERT_TRUE(usual.shortfall);
  EXPECT_EQ(usual.shortfall->provider, "hopper");  // which takes its forward from cuDNN
  EXPECT_NE(usual.shortfall->reason.find("cudnn"), std::string::npos);
  EXPECT_NE(usual.shortfall->cost, "");
  const ops::Choice later = choice({kUsual}, "cuda-sm100");
  ASSERT_TRUE(later.shortfall);
  EXPECT_EQ(later.shortfall->provider, "cudnn");
  // No kernel of this build takes these values; cuDNN does.
  const ops::Choice latent = choice({with_widths(192, 128)}, "cuda-sm90");
  EXPECT_EQ(latent.provider, "eager");
  ASSERT_TRUE(latent.shortfall);
  EXPECT_EQ(latent.shortfall->provider, "cudnn");
}

TEST_F(WithoutCudnn, WhatItRefusesIsAsGoodAsItGets) {
  for (const auto& [uses, hardware] : std::vector<std::pair<std::vector<Attention::Signature>, const char*>>{
           {{with_sinks()}, "cuda-sm90"},
           {{with_sinks()}, "cuda-sm80"},
           {{with_dtype(DType::kF32)}, "cuda-sm90"},
           {{with_widths(24, 16)}, "cuda-sm90"},
           {{with_widths(192, 128), with_widths(24, 16)}, "cuda-sm90"},
           {{kUsual}, "cuda-sm80"}})
    EXPECT_FALSE(choice(uses, hardware, true).shortfall) << hardware << " " << uses[0].head_dim;
}

}  // namespace
}  // namespace temper::backends
