#include "ops/selection_test_support.h"

namespace temper::ops::selection_testing {
namespace {

using op_testing::expect_error;

TEST(Selection, TheFirstThatAcceptsIsTheDefault) {
  EXPECT_EQ(run(bind({}, machine(true), {64})), 1);
  EXPECT_EQ(run(bind({}, machine(), {64})), 2);
  EXPECT_EQ(run(bind({}, machine(), {512})), 4);
  EXPECT_EQ(run(bind({}, known("cuda-sm90"), {64})), 3);
  EXPECT_EQ(run(bind(on_npu(), known("ascend-910b"), {64})), 8);
}

TEST(Selection, EverySignatureMustBeAccepted) {
  EXPECT_EQ(run(bind({}, machine(), {64, 128})), 2);
  EXPECT_EQ(run(bind({}, machine(), {64, 512, 128})), 4);
}

TEST(Selection, WhatIsWrittenIsKept) {
  for (const auto& [provider, number] : {std::pair{"narrow", 2}, {"eager", 4}, {"spare", 5}}) {
    const BoundOps ops = bind(written("probe_implementation", provider), machine(true), {64});
    EXPECT_EQ(run(ops), number);
    ASSERT_EQ(ops.choices().size(), 1u);
    EXPECT_EQ(ops.choices()[0].provider, provider);
    EXPECT_EQ(ops.choices()[0].field, "probe_implementation");
    EXPECT_EQ(ops.choices()[0].written, provider);
    EXPECT_TRUE(ops.choices()[0].passed_over.empty());
  }
}

TEST(Selection, TheFallbackCountsAsADefault) {
  OpsConfig config{.fallback = "eager"};
  const BoundOps ops = bind(config, machine(), {64});
  EXPECT_EQ(run(ops), 4);
  EXPECT_TRUE(ops.choices()[0].written.empty());
  config.written["probe"] = "spare";
  EXPECT_EQ(run(bind(config, machine(), {64})), 5);
  config.written.clear();
  config.without_fallback = {"probe"};
  EXPECT_EQ(run(bind(config, machine(), {64})), 2);
}

TEST(Selection, AMeasuredPreferenceDecidesOnlyWhatWasLeftOut) {
  const OpsConfig config{.preferred = {{{"probe", "spare"}}}};
  EXPECT_EQ(run(bind(config, machine(), {64})), 5);
  EXPECT_EQ(report(config, machine(), 64),
            line("probe_implementation", "spare", "the fastest measured on this machine") + kNotFast +
                note("or narrow") + kElsewhere + note("or eager"));
  EXPECT_EQ(
      run(bind({.written = {{"probe", "narrow"}}, .preferred = {{{"probe", "spare"}}}}, machine(), {64})), 2);
  EXPECT_EQ(run(bind({.preferred = {{{"probe", "absent"}}}}, machine(), {64})), 2);
  EXPECT_EQ(run(bind(config, machine(), {512})), 4);  // it cannot run here
}

TEST(Selection, AChoiceThatCannotRunIsAnError) {
  expect_error([] { bind(written("probe", "narow"), machine(), {64}); },
               "[model.ops_implementation] probe_implementation=narow is not a registered backend for probe. "
               "Set it to one of [eager, fast, narrow, spare]");
  expect_error(
      [] {
        bind(written("probe", "narrow"), machine(), {64, 512});
      },
      "[model.ops_implementation] probe_implementation=narrow cannot run: width 512 must be at most "
      "256. Set it to one of [eager]");
  expect_error([] { bind(written("probe", "device"), machine(), {64}); },
               "[model.ops_implementation] probe_implementation=device requires NVIDIA GPU but none is "
               "available. Set it to one of [eager, fast, narrow, spare]");
  expect_error([] { bind({.fallback = "fast"}, machine(), {512}); },
               "[model.ops_implementation] probe_implementation=fast cannot run: needs bfloat16 products in "
               "hardware. Set it to one of [eager]");
}

TEST(Selection, UnknownFieldsAreErrorsWithTheNearestName) {
  try {
    bind(written("filtermlp_implementation", "eager"), machine(), {64});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what())
                  .find("[model.ops_implementation] unknown field 'filtermlp_implementation', "
                        "did you mean 'filter_mlp'?; known are [adamw, attn, "),
              0u)
        << error.what();
  }
}

TEST(Selection, AFieldThatIsGoneNamesItsSuccessor) {
  for (const char* key : {"decode_attention", "decode_attention_implementation"})
    expect_error(
        [&] { bind(written(key, "eager"), machine(), {64}); },
        fmt::format("[model.ops_implementation] {} is gone: paged_attention_implementation chooses for "
                    "generation, too. Write that, or leave it out",
                    key));
}

TEST(Selection, AFieldThatTheModelDoesNotReadStaysInTheReport) {
  const std::string probe = line("probe_implementation", "fast", "default") + note("or narrow") + kElsewhere +
                            note("or eager") + note("or spare");
  for (const char* field : {"causal_conv1d", "filter_mlp"})
    EXPECT_EQ(
        report(written(field, "eager"), machine(true), 64),
        line(std::string(field) + "_implementation", "-", "written; this model does not use the op") + probe);
}

TEST(Selection, AMissingPackageIsToBeInstalledWhereAKernelWaitsForIt) {
  HardwareFacts strict = known("ascend-910b");
  expect_error(
      [&] { bind(on_npu("probe", "packed"), strict, {64}); },
      "[model.ops_implementation] probe_implementation=packed needs the package 'toolkit', which is not "
      "installed: install it or use eager. Set it to one of [eager, tiled]");
  strict.packages = {"toolkit"};
  EXPECT_EQ(run(bind(on_npu("probe", "packed"), strict, {64})), 8);
}

TEST(Selection, ReportSaysWhatWasChosenAndWhatWasPassedOver) {
  EXPECT_EQ(report({}, machine(), 512),
            line("probe_implementation", "eager", "default, the first that can run") + kNotFast + kNotNarrow +
                kElsewhere + note("not spare: width 512 must be at most 256"));
  EXPECT_EQ(report(written("probe", "spare"), machine(), 8),
            line("probe_implementation", "spare", "written") + kNotFast + note("or narrow") + kElsewhere +
                note("or eager"));
}

TEST(Selection, FamiliesAddAndDisable) {
  EXPECT_EQ(run(bind(written("probe", "invariant"), machine(), {64}, "probe_family")), 7);
  // The family's table comes before the registry.
  EXPECT_EQ(run(bind({}, machine(true), {64}, "probe_family")), 7);
  expect_error(
      [] { bind(written("probe", "spare"), machine(), {64}, "probe_family"); },
      "[model.ops_implementation] probe_implementation=spare is explicitly disabled for probe_family: no "
      "kernel matching this backend's signature. Set it to one of [eager, fast, invariant, narrow]");
  expect_error(
      [] { bind(written("probe", "invariant"), machine(), {64}, "llama"); },
      "[model.ops_implementation] probe_implementation=invariant is not a registered backend for llama. "
      "Set it to one of [eager, fast, narrow, spare]");
}

TEST(Selection, WhatMayNotBeWrittenIsNotADefaultEither) {
  EXPECT_EQ(run(bind({}, known("cuda-sm90"), {64})), 3);
  EXPECT_EQ(run(bind({}, known("cuda-sm90"), {64}, "probe_family")), 4);
  EXPECT_EQ(run(bind({.preferred = {{{"probe", "device"}}}}, known("cuda-sm90"), {64}, "probe_family")), 4);
  const HardwareFacts strict = known("ascend-910b");
  expect_error(
      [&] { bind(on_npu("probe", "unnamed"), strict, {64}); },
      "[model.ops_implementation] probe_implementation=unnamed is not supported on Strict NPU. Set it to "
      "one of [eager, tiled]");
  EXPECT_NE(report(on_npu(), strict, 64).find("not unnamed: is not in the allow-list of Strict NPU"),
            std::string::npos);
}

TEST(Selection, ATilingThatFitsIsTakenOrTheKernelIsRefused) {
  HardwareFacts facts = known("ascend-910b");
  EXPECT_EQ(bind(on_npu("probe", "eager"), facts, {64}).choices()[0].tilings, std::vector<std::string>{});
  const auto tilings = [&] {
    const BoundOps ops = bind(on_npu(), facts, {64});
    for (const Choice& choice : ops.choices())
      if (choice.op == "probe") return choice.tilings;
    return std::vector<std::string>();
  };
  EXPECT_EQ(tilings(), std::vector<std::string>{"64x64, 460,096 bits of 1,572,864 of the unified buffer"});
  facts.scratch_bytes = 256 << 10;
  EXPECT_EQ(tilings(),
            std::vector<std::string>{"128x128, 1,840,384 bits of 2,097,152 of the unified buffer"});
  facts.scratch_bytes = 192 << 10;
  const BoundOps refused = bind(on_npu(), facts, {1024});
  EXPECT_EQ(run(refused), 4);
  EXPECT_NE(explain(refused.choices(), facts)
                .find("not tiled: needs 1,840,384 bits, the unified buffer has 1,572,864"),
            std::string::npos)
      << explain(refused.choices(), facts);
}

TEST(Selection, BindingsSayWhatEachModuleHas) {
  const HardwareFacts facts = machine();
  Binder binder({.overrides = {{"layers.1.*", {{"probe", "spare"}}}}}, facts);
  binder.bind<Probe>({Use{"layers.0.mlp", {64}}, Use{"layers.1.mlp", {64}}});
  const BoundOps ops = binder.finish();
  const Kernel<Probe>*narrow = kernels<Probe>().find("narrow"), *spare = kernels<Probe>().find("spare");
  const std::vector<ModuleKernel> bound = ops.bindings();
  EXPECT_EQ(bound, (std::vector<ModuleKernel>{{"layers.0.mlp", "probe", "narrow", narrow},
                                              {"layers.1.mlp", "probe", "spare", spare}}));
  EXPECT_NO_THROW(check_unchanged(bound, BoundOps(ops).bindings()));
  const auto expect_change = [&](const std::vector<ModuleKernel>& now, const std::string& change) {
    expect_error(
        [&] { check_unchanged(bound, now); },
        fmt::format("[kernels] {}, expected the kernels that were chosen when the model was built; this "
                    "is a defect of Temper or of a plug-in, please report it: results since then are "
                    "of other kernels",
                    change));
  };
  expect_change({bound[0], {"layers.1.mlp", "probe", "narrow", narrow}},
                "probe of layers.1.mlp was bound to spare and is bound to narrow");
  const Kernel<Probe> patched = *narrow;
  expect_change(
      {{"layers.0.mlp", "probe", "narrow", &patched}},
      "probe of layers.0.mlp was bound to narrow and is bound to narrow at another address; probe of "
      "layers.1.mlp was bound to spare and is bound to none");
}

TEST(Selection, AHandleIsBoundOnce) {
  const BoundOps first = bind(written("probe", "narrow"), machine(), {64}),
                 second = bind(written("probe", "eager"), machine(), {64});
  Bound<Probe> handle;
  handle = Bound<Probe>(first);
  handle = Bound<Probe>(first);
  EXPECT_EQ(run(handle), 2);
  EXPECT_THROW(handle = Bound<Probe>(second), Error);
  EXPECT_EQ(run(handle), 2);
}

TEST(Selection, TwoModelsInOneProcessAreBoundDifferently) {
  const BoundOps policy = bind(written("probe", "narrow"), machine(), {64});
  const BoundOps teacher = bind(written("probe", "eager"), machine(), {512});
  const BoundOps copy = policy;
  EXPECT_EQ(run(policy), 2);
  EXPECT_EQ(run(teacher), 4);
  EXPECT_EQ(run(copy), 2);
}

TEST(Selection, TheSameKernelTwiceIsNoErrorButAnotherIs) {
  machine();
  const auto forward = [] { return 9; };
  const Kernel<Filter> kernel{.accepts = accept_all<Filter::Signature>, .forward = forward};
  kernels<Filter>().add("again", kernel);
  kernels<Filter>().add("again", kernel);
  Kernel<Filter> other = kernel;
  other.hardware = hardware::kGpu;
  EXPECT_THROW(kernels<Filter>().add("again", other), Error);
  EXPECT_EQ(kernels<Filter>().entries().size(), 2u);
}

TEST(Selection, MistakesOfOursAreDefects) {
  const auto kind_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kInterrupted;
  };
  const BoundOps ops = bind({}, machine(), {64});
  EXPECT_EQ(kind_of([&] { ops.get<Filter>(); }), ErrorKind::kDefect);
  Binder named({}, machine());
  named.use<Probe>("layers.0.mlp", {64});
  const BoundOps modules = named.finish();
  EXPECT_EQ(run(modules.at<Probe>("layers.0.mlp")), 2);
  EXPECT_EQ(kind_of([&] { modules.at<Probe>("layers.0.mpl"); }), ErrorKind::kDefect);
  EXPECT_EQ(kind_of([] {
              Binder binder({}, machine());
              binder.bind<Probe>(std::vector<Probe::Signature>{{64}});
              binder.bind<Probe>(std::vector<Probe::Signature>{{512}});
            }),
            ErrorKind::kDefect);
}

}  // namespace
}  // namespace temper::ops::selection_testing
