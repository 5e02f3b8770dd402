// What --dry-run of recipe grpo finds out.
#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

// What judges is started, and every prompt is read, before anything is trained.
TEST_F(GrpoCli, ADryRunTriesTheRewardsAndReadsAllPrompts) {
  const auto refused = [](const std::string& name, const std::string& grpo, const std::string& flags,
                          const std::string& message) {
    expect_refused("train " + configuration(name, grpo) + " --dry-run --output " + folder() + "/dry" + flags,
                   2, message);
  };
  refused("no_program", "  rewards: [{type: program, command: [python3, missing.py]}]\n", "", "missing.py");
  write_file(folder() + "/late.jsonl", prompts(8) + "{\"prompt\": 5}\n");
  refused("late", "", " --data.train [" + folder() + "/late.jsonl]", "late.jsonl:9]");
}

TEST_F(GrpoCli, ADryRunPlans) {
  const Outcome outcome =
      run("train " + configuration("dry", "") + " --dry-run --output " + folder() + "/dry");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"rewards        a made-up answer is worth 1\n", "updates of ", "and 6 rollouts of ",
        "with answers of 7 tokens (grpo.sampling.max_new_tokens)", "rewards, scores, evaluations",
        "checkpoints    every 2 steps and at the end", "Nothing was trained"})
    expect_has(outcome.out, part);
}

}  // namespace
}  // namespace temper
