// The kernels of an op asked about its uses, without a model, a configuration or a registry.
#include "ops/candidates.h"

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

struct FakeKernel {
  KernelFacts facts{.hardware = hardware::kCpu};
  Answer answer = {};
  std::optional<Better> better = {};
};

// An op whose kernels say the same of every use.
UntypedOp made_of(const std::vector<std::pair<std::string, FakeKernel>>& kernels) {
  const auto at = [](const void* any) { return *static_cast<const FakeKernel*>(any); };
  UntypedOp op{"weave", "weave"};
  for (const auto& [provider, kernel] : kernels) op.registered.push_back({provider, &kernel});
  op.facts = [at](const void* any) { return at(any).facts; };
  op.ask = [at](const void* any, size_t) { return at(any).answer; };
  op.better = [at](const void* any, size_t) { return at(any).better; };
  return op;
}

const std::vector<size_t> kUses{0, 1};

std::vector<Candidate> find(const std::vector<std::pair<std::string, FakeKernel>>& kernels,
                            const HardwareFacts& facts = {}) {
  return Candidates(made_of(kernels), kUses, facts).find("");
}

TEST(Candidates, SayWhyTheyRefuse) {
  const auto found = find({{"gpu", {.facts = {.hardware = hardware::kGpu}}},
                           {"narrow", {.answer = {"width must be at most 64", {}}}},
                           {"library", {.facts = {.hardware = hardware::kCpu, .missing = "no libweave"}}},
                           {"eager", {.facts = {.composes = true}}}});
  EXPECT_EQ(found[0].refusal, "is for gpu, this is cpu");
  EXPECT_TRUE(found[0].elsewhere);
  EXPECT_EQ(found[1].refusal, "width must be at most 64");
  EXPECT_EQ(found[2].refusal, "no libweave");
  EXPECT_EQ(found[2].missing, "cannot run here: no libweave");
  EXPECT_EQ(found[3].refusal, std::nullopt);
  EXPECT_EQ(found[3].place, 3u);
}

TEST(Candidates, TakeTheFirstTilingThatFitsAllUses) {
  HardwareFacts facts;
  facts.scratch_name = "L1";
  facts.scratch_bytes = 1000;
  const FakeKernel fits{.facts = {.hardware = hardware::kCpu},
                        .answer = {{}, {{{"large", 9000}, {"small", 8000}}}}};
  const FakeKernel large{.facts = {.hardware = hardware::kCpu}, .answer = {{}, {{{"large", 9000}}}}};
  const auto found = find({{"fits", fits}, {"large", large}}, facts);
  EXPECT_EQ(found[0].parts.tiling, 1);
  EXPECT_EQ(found[0].tilings.front(), "small, 8,000 bits of 8,000 of the L1");
  EXPECT_EQ(found[1].refusal, "needs 9,000 bits, the L1 has 8,000");
}

TEST(Candidates, TakePassesOfTheFirstThatCanRun) {
  const std::vector<std::pair<std::string, FakeKernel>> kernels{
      {"taker", {.facts = {.hardware = hardware::kCpu, .needs = {.forward = {"absent", "refuses", "runs"}}}}},
      {"stuck", {.facts = {.hardware = hardware::kCpu, .needs = {.backward = {"refuses"}}}}},
      {"refuses", {.answer = {"width must be even", {}}}},
      {"runs", {}}};
  const auto found = find(kernels);
  EXPECT_EQ(found[0].passes, std::vector<std::string>{"forward of runs"});
  EXPECT_EQ(found[0].parts.forward, &kernels[3].second);
  EXPECT_EQ(found[1].refusal, "takes its backward from refuses, which width must be even");
  EXPECT_EQ(found[1].missing, std::nullopt);
}

TEST(Candidates, NameTheBestKernelThatIsMissing) {
  const Better absent{"absent", "a step takes 3 times as long"}, runs{"runs"};
  const std::vector<std::pair<std::string, FakeKernel>> kernels{
      {"library", {.facts = {.hardware = hardware::kCpu, .missing = "no libweave"}}},
      {"slow", {.better = absent}},
      {"last", {.better = runs}},
      {"runs", {}}};
  const UntypedOp op = made_of(kernels);
  const HardwareFacts facts;
  const Candidates candidates(op, kUses, facts);
  std::vector<Candidate> found = candidates.find("");
  EXPECT_EQ(candidates.shortfall(found, found[1]).value().provider, "library");
  found[0].missing.reset();
  const auto behind = candidates.shortfall(found, found[1]);
  EXPECT_EQ(behind.value().provider, "absent");
  EXPECT_EQ(behind.value().reason, "is not in this build");
  EXPECT_EQ(behind.value().cost, absent.cost);
  EXPECT_FALSE(candidates.shortfall(found, found[2]));  // the better one is here: nothing is missing
}

TEST(Choices, ShortfallsAreErrorsWithAllOfThem) {
  Choice fine, behind;
  behind.op = "weave";
  behind.provider = "slow";
  behind.shortfall = {"absent", "is not in this build", ""};
  EXPECT_NO_THROW(refuse_shortfalls({fine}));
  op_testing::expect_error(
      [&] {
        refuse_shortfalls({behind, fine, behind});
      },
      "[model.strict_kernels] weave runs on 'slow', not on 'absent', the best kernel for "
      "this hardware, which is not in this build; weave runs on 'slow', not on 'absent', "
      "the best kernel for this hardware, which is not in this build. Bring what is "
      "missing, write the kernels that you want under model.ops_implementation, or set "
      "model.strict_kernels to false");
}

}  // namespace
}  // namespace temper::ops
