#include "ops/selection_test_support.h"

namespace temper::ops::selection_testing {
namespace {

using op_testing::expect_error;

TEST(Overrides, AnOverrideThatTheModelDoesNotReadIsRefused) {
  Binder binder({.overrides = {{"layers.0.mlp", {{"causal_conv1d", "eager"}}}}}, machine());
  binder.bind<Probe>(std::vector<Use>{{"layers.0.mlp", {64}}});
  expect_error([&] { binder.finish(); },
               "[model.ops_implementation.overrides.'layers.0.mlp'] names no module that has causal_conv1d; "
               "modules are named as in 'layers.0.mlp', ranges as in 'layers.0-3.*'");
}

TEST(Overrides, NothingThatIsWrittenVanishes) {
  EXPECT_THROW(bind(written("moe", "nonsense"), machine(), {64}), Error);
  EXPECT_THROW(bind(written("probe", ""), machine(), {64}), Error);
  EXPECT_THROW(bind({.written = {{"probe", "eager"}, {"probe_implementation", "narrow"}}}, machine(), {64}),
               Error);
  EXPECT_THROW(bind({.overrides = {{"layers.0.*", {}}}}, machine(), {64}), Error);
  const auto with_override = [](const FieldValues& values) {
    Binder binder({.overrides = {{"layers.0.mlp", values}}}, machine());
    binder.bind<Probe>(std::vector<Use>{{"layers.0.mlp", {64}}, {"norm", {64}}});
    return binder.finish();
  };
  EXPECT_EQ(run(with_override({{"probe", "eager"}}).at<Probe>("layers.0.mlp")), 4);
  expect_error(
      [&] {
        with_override({{"probe", "eager"}, {"rms_norm", "eager"}});
      },
      "[model.ops_implementation.overrides.'layers.0.mlp'] names no module that has rms_norm; modules are "
      "named as in 'layers.0.mlp', ranges as in 'layers.0-3.*'");
  expect_error(
      [&] {
        with_override({{"probe", "device"}});
      },
      "[model.ops_implementation.overrides.'layers.0.mlp'] probe_implementation=device requires NVIDIA GPU "
      "but none is available. Set it to one of [eager, fast, narrow, spare]");
}

TEST(Overrides, OverridesNameModules) {
  const auto bind_layers = [](const std::map<std::string, FieldValues>& overrides) {
    Binder binder({.overrides = overrides}, machine());
    std::vector<Use> uses{{"norm", {64}}};
    for (int i = 0; i < 6; ++i) uses.push_back({fmt::format("layers.{}.input_norm", i), {i == 5 ? 512 : 64}});
    binder.bind<Probe>(uses);
    return binder.finish();
  };
  const BoundOps ops =
      bind_layers({{"layers.0-3.*", {{"probe", "spare"}}}, {"layers.5.*", {{"probe", "eager"}}}});
  EXPECT_EQ(run(ops.at<Probe>("norm")), 2);
  EXPECT_EQ(run(ops.at<Probe>("layers.0.input_norm")), 5);
  EXPECT_EQ(run(ops.at<Probe>("layers.3.input_norm")), 5);
  EXPECT_EQ(run(ops.at<Probe>("layers.4.input_norm")), 2);
  EXPECT_EQ(run(ops.at<Probe>("layers.5.input_norm")), 4);
  EXPECT_EQ(explain(ops.choices(), machine()),
            line("probe_implementation", "narrow", "default, the first that can run") + kNotFast +
                kElsewhere + note("or eager") + note("or spare") +
                line("  in layers.0-3.*", "spare", "written") + kNotFast + note("or narrow") + kElsewhere +
                note("or eager") + line("  in layers.5.*", "eager", "written") + kNotFast + kNotNarrow +
                kElsewhere + note("not spare: width 512 must be at most 256"));
  // Where the fifth layer is not excepted, its width refuses the kernel that the others could take.
  EXPECT_EQ(run(bind_layers({{"layers.0.*", {{"probe", "spare"}}}}).at<Probe>("norm")), 4);
  EXPECT_THROW(bind_layers({{"layers.9.*", {{"probe", "eager"}}}}), Error);
  EXPECT_THROW(bind_layers({{"layers.*", {{"probe", "eager"}}}, {"*", {{"probe", "narrow"}}}}), Error);
}

TEST(Overrides, ModulePatterns) {
  EXPECT_TRUE(module_matches("layers.0-3.*", "layers.2.attention.qkv"));
  EXPECT_TRUE(module_matches("layers.*.mlp", "layers.12.mlp"));
  EXPECT_TRUE(module_matches("*", "norm"));
  EXPECT_FALSE(module_matches("layers.0-3.*", "layers.4.mlp"));
  EXPECT_FALSE(module_matches("layers.0-3", "layers.2.mlp"));
  EXPECT_FALSE(module_matches("layers.2.mlp.*", "layers.2.mlp"));
  EXPECT_FALSE(module_matches("layers.a-b.*", "layers.2.mlp"));
}

}  // namespace
}  // namespace temper::ops::selection_testing
