// Stages of a pipeline train what one rank trains, and read and write the same checkpoints and models.
#include "tests/cli/ranks_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class Pipeline : public RanksOfARun {};

TEST_F(Pipeline, LearnsWhatOneRankLearns) {
  const std::string flags =
      "--eval.every_steps 6 --data.eval_fraction 0.02 --train.micro_batch_tokens 64 --train.rows_per_step 6 ";
  expect_on_meshes("stages", flags, train("unstaged", flags),
                   {"--ranks 2 --parallel.pipeline 2", "--ranks 4 --parallel.pipeline 2 --parallel.tensor 2",
                    "--ranks 4 --parallel.pipeline 2 --parallel.shard 2 --parallel.shard_level 3",
                    "--ranks 4 --parallel.pipeline 2 --train.activation_checkpointing full"});
  const std::string adapters = flags + "--adapters \"[{name: a, rank: 4, dropout: 0.1}]\" ";
  const std::string one = train("unstaged_adapter", adapters);
  expect_same_course(train("staged_adapter", adapters + "--ranks 2 --parallel.pipeline 2") + "/adapters/a",
                     one + "/adapters/a");
}

// In processes, whose transfers are messages: the bits of threads.
TEST_F(Pipeline, OfProcessesGivesTheBitsOfThreads) {
  const std::string flags =
      "--train.micro_batch_tokens 64 --ranks 4 --parallel.pipeline 2 --parallel.shard 2 ";
  expect_same_model(train_in_processes("processes", flags), train("threads", flags));
}

// Interrupted, a run continues with the same bits; with other stages, or none, it learns the same.
TEST_F(Pipeline, ContinuesItsCheckpoints) {
  const std::string flags = "--train.micro_batch_tokens 64 --train.schedule.type constant ",
                    two = "--ranks 2 ", stages = two + "--parallel.pipeline 2 ";
  const std::string whole = train("whole", flags + stages);
  train("continued", flags + stages + "--train.steps 5");
  expect_same_model(train("continued", flags + stages), whole);
  for (const std::string& other : {std::string(), two, two + "--parallel.tensor 2 "}) {
    const std::string name = "elsewhere" + std::to_string(other.size());
    train(name, flags + stages + "--train.steps 5");
    expect_same_course(train(name, flags + other), whole);
    const std::string back = "back" + std::to_string(other.size());
    train(back, flags + other + "--train.steps 5");
    expect_same_course(train(back, flags + stages), whole);
  }
}

TEST_F(Pipeline, IsVerifiedBeforeARun) {
  const std::string goldens = TEMPER_SOURCE_DIR "/tests/goldens/";
  for (const char* model :
       {"qwen3_moe_trained", "qwen3_next_trained", "gemma3_text_trained", "phi3_trained"}) {
    const Outcome outcome = run("verify-layout " + yaml() + " --model.path " + goldens + model +
                                " --ranks 2 --parallel.pipeline 2 --train.router.balance_scope global");
    EXPECT_EQ(outcome.code, 0) << model << ": " << outcome.err;
    expect_has(outcome.out, "2 ranks: pipeline 2, replicate 1, shard 1");
  }
}

TEST_F(Pipeline, SaysWhatItCannotDo) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run("train " + yaml() + " --output " + folder() + "/refused " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  };
  const std::string two = "--ranks 2 --parallel.pipeline 2 ";
  expect_has(refusal("--ranks 3 --parallel.pipeline 2"),
             "[parallel.pipeline] is 2, but the number of ranks is 3");
  expect_has(refusal("--ranks 4 --parallel.pipeline 4"), "the model has 3 layers");
  expect_has(refusal("--parallel.pipeline_chunks 2"), "[parallel.pipeline_chunks] is 2");
  expect_has(refusal(two + "--quantize.preset INT8_WEIGHT_ONLY"), "[parallel.pipeline] is 2, but quantizers");
  expect_has(refusal(two + "--eval.exact_match 4"), "eval.exact_match");
  expect_has(refusal("--parallel.pipeline 0"), "'parallel.pipeline': expected an integer at least 1");
}

}  // namespace
}  // namespace temper
