// The choice of kernels for whole models.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/adamw/adamw.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

std::string provider_of(const ops::BoundOps& ops, const std::string& op) {
  for (const ops::Choice& choice : ops.choices())
    if (choice.op == op) return choice.provider;
  return "";
}

template <class Op>
bool is_eager(const ops::BoundOps& ops, const char* module) {
  return ops.at<Op>(module).compose != nullptr;
}

TEST(ModelKernels, TrainingNeedsAChoice) {
  BuildOptions options{.purpose = Purpose::kTraining};
  EXPECT_THROW(bind_kernels(tiny_config(), "tiny", options), Error);
  options.ops = ops::all_eager();
  const ops::BoundOps ops = bind_kernels(tiny_config(), "tiny", options);
  EXPECT_EQ(provider_of(ops, "rms_norm"), "eager");
  EXPECT_NE(provider_of(ops, "attention"),
            "eager");  // never a matrix of tokens × tokens where it can be helped
}

TEST(ModelKernels, HardwareThatIsNotHereIsBoundToo) {
  BuildOptions options{.facts = known_hardware("cuda-sm90")};
  const ops::BoundOps ops = bind_kernels(tiny_config(), "tiny", options);
  EXPECT_EQ(ops.choices().size(), 14u);
}

TEST(ModelKernels, OverridesReachTheirModules) {
  const BuildOptions options{.ops =
                                 ops::OpsConfig{.overrides = {{"layers.1.*", {{"rms_norm", "eager"}}},
                                                              {"layers.0.mlp.gate_up", {{"linear", "eager"}}},
                                                              {"optimizer", {{"adamw", "eager"}}}}}};
  const ops::BoundOps ops = bind_kernels(tiny_config(), "tiny", options);
  EXPECT_TRUE(is_eager<ops::RmsNorm>(ops, "layers.1.post_attention_norm"));
  EXPECT_FALSE(is_eager<ops::RmsNorm>(ops, "layers.0.input_norm"));
  EXPECT_FALSE(is_eager<ops::RmsNorm>(ops, "norm"));
  EXPECT_TRUE(is_eager<ops::AdamW>(ops, "optimizer"));
  EXPECT_TRUE(is_eager<ops::Linear>(ops, "layers.0.mlp.gate_up"));
  EXPECT_FALSE(is_eager<ops::Linear>(ops, "layers.0.mlp.down"));
}

TEST(ModelKernels, AFamilyThatIsNotBuiltSaysSo) {
  Json::Object config = tiny_config().as_object();
  config[0].second = "qwen2_5_omni";
  try {
    bind_kernels(config, "config.json", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'qwen2_5_omni' is not built yet"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace temper::models
