// Log-probabilities of rollouts and of training: temper compare-logprobs.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

void expect_said(const Outcome& outcome, const std::string& part) {
  EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out << outcome.err;
}

TEST_F(Cli, CompareLogprobsIsExactlyZeroWithBatchInvariantKernels) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  write_file(folder() + "/compare.jsonl",
             R"({"prompt": [{"role": "user", "content": "What is 10 + 5, and what is 11 + 7?"}]})"
             "\n"
             R"({"prompt": "1 + 1 = "})"
             "\n"
             R"({"prompt": "2 + 1 = "})"
             "\n");
  const std::string compare = "compare-logprobs " + folder() + "/model " + folder() + "/compare.jsonl";
  const Outcome outcome =
      run(compare + " --rows 2 -n 6 --batch 1 --batch 5 --threads 1 --dtype float32 --batch-invariant");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_said(outcome, "2 texts, 12 tokens of answers");
  expect_said(outcome, "batch-invariant kernels\nbatch  prefix cache");
  expect_said(outcome, "ms per pass  first op\n");
  expect_said(outcome, "exactly 0: log-probabilities of rollouts are those of training, bit for bit\n");
  expect_said(outcome, "\nusual kernels\n");
  expect_said(outcome, "time of a pass with --batch-invariant, to one without: ");
  expect_said(outcome, " times with 5 at once");

  const Outcome usual = run(compare + " -n 6 --batch 5 --threads 1 --dtype float32");
  ASSERT_EQ(usual.code, 0) << usual.err;
  expect_said(usual, "3 texts, 18 tokens of answers");
  EXPECT_EQ(usual.out.find("--batch-invariant"), std::string::npos) << usual.out;
}

// With what a run has trained, and without it, in the same passes.
TEST_F(Cli, CompareLogprobsOfAdapters) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  write_file(folder() + "/lora.yaml", read_file(yaml()) + "adapters: [{name: math, rank: 4, lr: 1e-2}]\n");
  ASSERT_EQ(run("train " + folder() + "/lora.yaml --train.threads 1 --output " + folder() + "/lora").code, 0);
  write_file(folder() + "/prompts.jsonl", "{\"prompt\": \"1 + 1 = \"}\n{\"prompt\": \"2 + 5 = \"}\n");
  const std::string compare = "compare-logprobs " + folder() + "/model " + folder() +
                              "/prompts.jsonl -n 5 --batch 3 --threads 1 --dtype float32 --batch-invariant";
  const Outcome outcome =
      run(compare + " --adapter " + folder() + "/lora/adapters/math/adapter --adapter none");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_said(outcome, "4 texts, ");
  expect_said(outcome, "exactly 0: log-probabilities of rollouts are those of training, bit for bit\n");
  expect_said(outcome, "\nusual kernels\n");
  expect_refused(compare + " --adapter math=-", 2,
                 "[--adapter] math comes from another process; name its folder");
  expect_refused(compare + " --adapter nowhere", 2, "nowhere");
}

TEST_F(Cli, CompareLogprobsRefusesWhatItCannotCompare) {
  write_file(folder() + "/bad.jsonl", R"({"prompt": 3})"
                                      "\n");
  write_file(folder() + "/empty.jsonl", "");
  const std::string compare = "compare-logprobs " + folder() + "/model " + folder();
  expect_refused(compare + "/bad.jsonl", 2, "bad.jsonl:1] prompt must be a string or a list of messages");
  expect_refused(compare + "/bad.jsonl --batch two", 2, "[--batch] 'two' is not a number of answers");
  expect_refused(compare + "/bad.jsonl --rows 0", 2, "[--rows] 0 is out of range");
  expect_refused(compare + "/nowhere.jsonl", 2, "nowhere.jsonl");
  expect_refused(compare + "/empty.jsonl", 2, "empty.jsonl");
}

}  // namespace
}  // namespace temper
