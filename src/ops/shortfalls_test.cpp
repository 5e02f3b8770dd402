// Kernels that take passes from others, kernels that wait for what is missing, and defaults that are not the
// best.
#include "ops/report.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using op_testing::expect_error;

// An op of these tests alone: a pass returns the number of the kernel that it is of.
struct Blend {
  static constexpr std::string_view kName = "blend", kField = "blend";
  struct Signature {
    int64_t width = 0;
  };
  using Forward = int();
  using Backward = int();
  using Compose = int();
};

std::string lacking;  // the library that `library` waits for; empty: it is here

Refusal narrow(const Blend::Signature& s, const HardwareFacts&) {
  if (s.width > 64) return "width must be at most 64";
  return std::nullopt;
}
Refusal missing(const HardwareFacts&) { return lacking.empty() ? Refusal() : Refusal(lacking); }
std::optional<Better> absent_is_better(const Blend::Signature& s, const HardwareFacts&) {
  if (s.width > 1024) return std::nullopt;
  return Better{"absent", "a step takes 3 times as long (measured)"};
}

// In order of preference: best (forward of library), library, orphan (forward of a kernel that is
// not there), own, eager.
void register_blend() {
  auto& all = kernels<Blend>();
  if (all.find("best") != nullptr) return;
  all.add("orphan", {.accepts = narrow, .backward = [] { return 50; }, .needs = {.forward = {"absent"}}});
  all.add("best", {.accepts = narrow,
                   .backward = [] { return 10; },
                   .needs = {.forward = {"absent", "library"}},
                   .outline = {.backward = [] { return 11; }}});
  all.add("library", {.accepts = accept_all<Blend::Signature>,
                      .forward = [] { return 2; },
                      .backward = [] { return 20; },
                      .missing = missing,
                      .outline = {.forward = [] { return 21; }}});
  all.add("own", {.accepts = accept_all<Blend::Signature>,
                  .forward = [] { return 3; },
                  .backward = [] { return 30; },
                  .better = absent_is_better});
  register_op<Blend>([] { return 4; });
}

// A second one. Its one kernel takes little and knows of a better one that takes more.
struct Crush {
  static constexpr std::string_view kName = "crush", kField = "crush";
  using Signature = Blend::Signature;
  using Forward = int();
  using Backward = int();
  using Compose = int();
};

std::optional<Better> absent_takes_more(const Crush::Signature& s, const HardwareFacts&) {
  if (s.width > 256) return std::nullopt;
  return Better{"absent", "a step takes twice as long (measured)"};
}

void register_crush() {
  if (kernels<Crush>().find("small") != nullptr) return;
  kernels<Crush>().add("small",
                       {.accepts = narrow, .forward = [] { return 1; }, .better = absent_takes_more});
  register_op<Crush>([] { return 2; });
}

class Shortfalls : public testing::Test {
 protected:
  void SetUp() override {
    register_blend();
    register_crush();
    lacking.clear();
  }
  static BoundOps bind(int64_t width, OpsConfig config = {}) {
    Binder binder(std::move(config), op_testing::facts());
    binder.bind<Blend>(std::vector<Blend::Signature>{{width}});
    return binder.finish();
  }
  static Choice crush(const std::vector<int64_t>& widths) {
    std::vector<Crush::Signature> signatures;
    for (const int64_t width : widths) signatures.push_back({width});
    Binder binder({}, op_testing::facts());
    binder.bind<Crush>(signatures);
    return binder.finish().choices().at(0);
  }
  static const Choice& choice_of(const BoundOps& ops) { return ops.choices().at(0); }
};

TEST_F(Shortfalls, APassOfAnotherKernelIsFoundWhenTheKernelIsChosen) {
  const BoundOps ops = bind(64);
  const Kernel<Blend>& kernel = ops.get<Blend>();
  EXPECT_EQ(choice_of(ops).provider, "best");
  EXPECT_EQ(choice_of(ops).passes, std::vector<std::string>{"forward of library"});
  EXPECT_EQ(kernel.forward(), 2);
  EXPECT_EQ(kernel.backward(), 10);
  EXPECT_EQ(outlined(kernel).forward(), 21);
  EXPECT_EQ(outlined(kernel).backward(), 11);
  EXPECT_NE(explain(ops.choices(), op_testing::facts()).find("with forward of library"), std::string::npos);
}

TEST_F(Shortfalls, AKernelWhosePassIsInNoRoomOfTheBuildIsRefusedWithThat) {
  // It comes first, and its absence is one: best runs instead of orphan.
  const BoundOps ops = bind(64);
  ASSERT_TRUE(choice_of(ops).shortfall);
  EXPECT_EQ(describe_shortfall(choice_of(ops)),
            "blend runs on 'best', not on 'orphan', the best kernel for this hardware, which takes its "
            "forward from "
            "absent, "
            "which is not in this build");
  expect_error(
      [] {
        bind(64, {.written = {{"blend", "orphan"}}});
      },
      "[model.ops_implementation] blend_implementation=orphan cannot run: takes its forward from "
      "absent, which is not in this build. Set it to one of [best, eager, library, own]");
}

TEST_F(Shortfalls, TheLibraryThatIsMissingIsReported) {
  lacking = "libblend was not found; install blend";
  const BoundOps ops = bind(128);
  EXPECT_EQ(choice_of(ops).provider, "own");
  ASSERT_TRUE(choice_of(ops).shortfall);
  EXPECT_EQ(describe_shortfall(choice_of(ops)),
            "blend runs on 'own', not on 'library', the best kernel for this hardware, which cannot run "
            "here: libblend was not "
            "found; install "
            "blend; without it a step takes 3 times as long (measured)");
  // So it is of what takes a pass from the library.
  const BoundOps needing = bind(64, {.preferred = {{{"blend", "own"}}}});
  EXPECT_EQ(choice_of(needing).provider, "own");
  EXPECT_TRUE(choice_of(needing).shortfall);
  expect_error(
      [] {
        bind(64, {.written = {{"blend", "best"}}});
      },
      "[model.ops_implementation] blend_implementation=best cannot run: takes its forward from "
      "library, which cannot run here: libblend was not found; install blend. Set it to one of [eager, own]");
}

TEST_F(Shortfalls, WhatIsAsGoodAsItGetsIsSilent) {
  EXPECT_FALSE(choice_of(bind(2048)).shortfall);  // the library is here
  lacking = "libblend was not found";
  EXPECT_TRUE(choice_of(bind(2048)).shortfall);
  // What a user wrote is no default.
  const BoundOps written = bind(128, {.written = {{"blend", "own"}}});
  EXPECT_FALSE(choice_of(written).shortfall);
  EXPECT_FALSE(choice_of(bind(128, {.fallback = "eager"})).shortfall);
}

TEST_F(Shortfalls, ACompositionIsBehindWhatWouldTakeAllUses) {
  EXPECT_EQ(describe_shortfall(crush({64})),
            "crush runs on 'small', not on 'absent', the best kernel for this hardware, which is not in this "
            "build; without it a step takes twice as long (measured)");
  // The cost is that of small.
  EXPECT_EQ(describe_shortfall(crush({64, 128})),
            "crush runs on 'eager', not on 'absent', the best kernel for this hardware, which is not in this "
            "build");
  // What the better kernel itself refuses is as good as it gets.
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{512}, {64, 512}}) {
    EXPECT_EQ(crush(widths).provider, "eager");
    EXPECT_FALSE(crush(widths).shortfall);
  }
}

TEST_F(Shortfalls, WhereNoKernelCanBeAskedNoneIsNamed) {
  Choice choice;
  choice.op = "crush";
  choice.field = "crush_implementation";
  choice.provider = "eager";
  choice.shortfall = {"", "the kernels for this hardware are not in this build (no mill: buy one)", ""};
  EXPECT_EQ(describe_shortfall(choice),
            "crush runs on 'eager', a composition: the kernels for this hardware are not in this build (no "
            "mill: buy one)");
  EXPECT_NE(explain({choice}, op_testing::facts())
                .find("NOT THE BEST for this hardware: the kernels for this hardware are not in this build"),
            std::string::npos);
}

TEST_F(Shortfalls, AWrittenKernelThatMissesItsLibrarySaysSoOnce) {
  lacking = "libblend was not found; install blend";
  expect_error(
      [] {
        bind(64, {.written = {{"blend", "library"}}});
      },
      "[model.ops_implementation] blend_implementation=library cannot run: libblend was not found; install "
      "blend. Set it to one of [eager, own]");
}

TEST_F(Shortfalls, AreErrorsOfStrictRuns) {
  EXPECT_EQ(choice_of(bind(2048, {.strict = true})).provider, "library");
  lacking = "libblend was not found";
  expect_error([] { bind(128, {.strict = true}); },
               "[model.strict_kernels] blend runs on 'own', not on 'library', the best kernel for this "
               "hardware, which "
               "cannot run here: libblend was not found; without it a step takes 3 times as long (measured). "
               "Bring what is "
               "missing, write the kernels that you want under model.ops_implementation, or set "
               "model.strict_kernels to false");
  EXPECT_EQ(choice_of(bind(128, {.written = {{"blend", "own"}}, .strict = true})).provider, "own");
}

TEST_F(Shortfalls, AreInReports) {
  lacking = "libblend was not found";
  const BoundOps ops = bind(128);
  const HardwareFacts& facts = op_testing::facts();
  EXPECT_NE(
      explain(ops.choices(), facts)
          .find("NOT THE BEST for this hardware, that is library: without it a step takes 3 times as long"),
      std::string::npos)
      << explain(ops.choices(), facts);
  const Json report = explain_json(ops, facts);
  const Json& shortfall = report.at("choices").as_array().at(0).at("shortfall");
  EXPECT_EQ(shortfall.at("best").as_string(), "library");
  EXPECT_EQ(shortfall.at("reason").as_string(), "cannot run here: libblend was not found");
}

}  // namespace
}  // namespace temper::ops
