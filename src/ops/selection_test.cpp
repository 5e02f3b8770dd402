#include "ops/selection.h"

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using op_testing::expect_error;

// An op of this test alone: it returns the number of the kernel that ran.
struct Probe {
  static constexpr std::string_view kName = "probe", kField = "probe";
  struct Signature {
    int64_t width = 0;
  };
  using Forward = int();
  using Backward = void();
  using Compose = int();
};

// A second one, so that a model has two fields.
struct Filter {
  static constexpr std::string_view kName = "filter", kField = "filter_mlp";
  struct Signature {};
  using Forward = int();
  using Backward = void();
  using Compose = int();
};

Refusal narrow_only(const Probe::Signature& signature, const HardwareFacts&) {
  if (signature.width > 256) return fmt::format("width {} must be at most 256", signature.width);
  return std::nullopt;
}

Refusal native_bf16_only(const Probe::Signature&, const HardwareFacts& facts) {
  if (!facts.native_bf16) return "needs bfloat16 products in hardware";
  return std::nullopt;
}

// In order of preference: fast, narrow, device (a gpu's), eager, spare.
void register_probe() {
  auto& registry = kernels<Probe>();
  if (registry.find("fast") != nullptr) return;
  kernels<Filter>().add(kEager, {.accepts = accept_all<Filter::Signature>, .compose = [] { return 6; }});
  registry.add("fast", {.accepts = native_bf16_only, .forward = [] { return 1; }});
  registry.add("narrow", {.accepts = narrow_only, .forward = [] { return 2; }});
  registry.add("device", {.hardware = HardwareClass::kGpu,
                          .accepts = accept_all<Probe::Signature>,
                          .forward = [] { return 3; }});
  registry.add(kEager, {.accepts = accept_all<Probe::Signature>, .compose = [] { return 4; }});
  registry.add("spare", {.accepts = narrow_only, .forward = [] { return 5; }});
}

HardwareFacts machine(HardwareClass hardware = HardwareClass::kCpu, bool native_bf16 = false) {
  register_probe();
  HardwareFacts facts;
  facts.hardware = hardware;
  facts.native_bf16 = native_bf16;
  return facts;
}

OpsConfig written(const std::string& field, const std::string& provider) {
  OpsConfig config;
  config.written[field] = provider;
  return config;
}

BoundOps bind(const OpsConfig& config, const HardwareFacts& facts, const std::vector<int64_t>& widths) {
  std::vector<Probe::Signature> signatures;
  for (const int64_t width : widths) signatures.push_back({width});
  Binder binder(config, facts);
  binder.bind<Probe>(signatures);
  return binder.finish();
}

int run(const BoundOps& ops) {
  const Kernel<Probe>& kernel = ops.get<Probe>();
  return kernel.compose != nullptr ? kernel.compose() : kernel.forward();
}

TEST(Selection, TheFirstThatAcceptsIsTheDefault) {
  EXPECT_EQ(run(bind({}, machine(HardwareClass::kCpu, true), {64})), 1);
  EXPECT_EQ(run(bind({}, machine(), {64})), 2);
  EXPECT_EQ(run(bind({}, machine(), {512})), 4);
  EXPECT_EQ(run(bind({}, machine(HardwareClass::kGpu), {64})), 3);
  EXPECT_EQ(run(bind({}, machine(HardwareClass::kNpu), {64})), 4);
}

TEST(Selection, EverySignatureMustBeAccepted) {
  EXPECT_EQ(run(bind({}, machine(), {64, 128})), 2);
  EXPECT_EQ(run(bind({}, machine(), {64, 512, 128})), 4);
}

TEST(Selection, WhatIsWrittenIsKept) {
  for (const auto& [provider, number] : {std::pair{"narrow", 2}, {"eager", 4}, {"spare", 5}}) {
    const BoundOps ops =
        bind(written("probe_implementation", provider), machine(HardwareClass::kCpu, true), {64});
    EXPECT_EQ(run(ops), number);
    ASSERT_EQ(ops.choices().size(), 1u);
    EXPECT_EQ(ops.choices()[0].provider, provider);
    EXPECT_EQ(ops.choices()[0].field, "probe_implementation");
    EXPECT_TRUE(ops.choices()[0].written);
    EXPECT_TRUE(ops.choices()[0].refused.empty());
  }
}

TEST(Selection, TheFallbackCountsAsADefault) {
  OpsConfig config;
  config.fallback = "eager";
  const BoundOps ops = bind(config, machine(), {64});
  EXPECT_EQ(run(ops), 4);
  EXPECT_FALSE(ops.choices()[0].written);
  config.written["probe_implementation"] = "spare";
  EXPECT_EQ(run(bind(config, machine(), {64})), 5);
}

TEST(Selection, AChoiceThatCannotRunIsAnError) {
  expect_error([] { bind(written("probe_implementation", "narow"), machine(), {64}); },
               "[model.ops_implementation] probe_implementation=narow is not a registered backend. "
               "Set it to one of [eager, narrow, spare]");
  expect_error(
      [] {
        bind(written("probe_implementation", "narrow"), machine(), {64, 512});
      },
      "[model.ops_implementation] probe_implementation=narrow cannot run: narrow: width 512 must be at most "
      "256. Set it to one of [eager]");
  expect_error(
      [] { bind(written("probe_implementation", "device"), machine(), {64}); },
      "[model.ops_implementation] probe_implementation=device cannot run: device: is for gpu, this is cpu. "
      "Set it to one of [eager, narrow, spare]");
  OpsConfig fallback;
  fallback.fallback = "fast";
  expect_error(
      [&] { bind(fallback, machine(), {512}); },
      "[model.ops_implementation] probe_implementation=fast cannot run: fast: needs bfloat16 products in "
      "hardware. Set it to one of [eager]");
}

TEST(Selection, UnknownFieldsAreErrorsWithTheNearestName) {
  const auto bind_two = [](const std::string& field) {
    Binder binder(written(field, "eager"), machine());
    binder.bind<Probe>({{64}});
    binder.bind<Filter>({{}});
    binder.finish();
  };
  expect_error(
      [&] { bind_two("filtermlp_implementation"); },
      "[model.ops_implementation] unknown field 'filtermlp_implementation', did you mean "
      "'filter_mlp_implementation'?; this model has [filter_mlp_implementation, probe_implementation]");
  expect_error(
      [&] { bind_two("dropout"); },
      "[model.ops_implementation] unknown field 'dropout'; this model has [filter_mlp_implementation, "
      "probe_implementation]");
  bind_two("filter_mlp_implementation");
}

TEST(Selection, ReportSaysWhatWasChosenAndWhatWasPassedOver) {
  EXPECT_EQ(bind({}, machine(), {512}).report(),
            "probe_implementation               eager    (default)\n"
            "                                   not fast: needs bfloat16 products in hardware\n"
            "                                   not narrow: width 512 must be at most 256\n"
            "                                   not device: is for gpu, this is cpu\n");
  EXPECT_EQ(bind(written("probe_implementation", "spare"), machine(), {8}).report(),
            "probe_implementation               spare    (as written)\n");
}

TEST(Selection, TwoModelsInOneProcessAreBoundDifferently) {
  const BoundOps policy = bind(written("probe_implementation", "narrow"), machine(), {64});
  const BoundOps teacher = bind(written("probe_implementation", "eager"), machine(), {512});
  const BoundOps copy = policy;
  EXPECT_EQ(run(policy), 2);
  EXPECT_EQ(run(teacher), 4);
  EXPECT_EQ(run(copy), 2);
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
  EXPECT_EQ(kind_of([] {
              Binder binder({}, machine());
              binder.bind<Probe>({{64}});
              binder.bind<Probe>({{512}});
            }),
            ErrorKind::kDefect);
}

}  // namespace
}  // namespace temper::ops
