// Runs with quantizers that send their weights to another process, and what the memory for it is.
#include "tests/cli/exchange_fixture.h"

namespace temper {
namespace {

// Of weights with quantizers what passes compute with; both processes have the same numbers then.
TEST_F(TrainerSends, RoundedWeights) {
  const char* const meshes[] = {"", " --ranks 2 --parallel.shard 2 --parallel.shard_level 3",
                                " --ranks 2 --parallel.tensor 2"};
  for (size_t i = 0; i < std::size(meshes); ++i) {
    const std::string mesh = meshes[i], out = fmt::format("rounded_{}", i);
    const auto answers = answer_beside();
    const Outcome trained = run(sending(out,
                                        "--quantize.preset INT8_WEIGHT_ONLY --exchange.every_steps 6 "
                                        "--exchange.check_sync true") +
                                mesh);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_NE(trained.err.find("parameters and buffers are alike"), std::string::npos) << trained.err;
    EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
    EXPECT_NE(answers->log().find("took weights of version 12: "), std::string::npos) << answers->log();
    // Training goes on with the weights as they are.
    if (mesh.empty()) {
      EXPECT_EQ(losses(train("unsent_rounded", "--train.threads 1 --quantize.preset INT8_WEIGHT_ONLY")),
                losses(folder() + "/" + out));
    }
  }
}

TEST_F(TrainerSends, PlansSayWhatMemoryValuesTravelThrough) {
  const auto plan = [](const std::string& more) {
    const Outcome outcome = run(sending("planned", "--dry-run --explain-memory " + more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err + outcome.out;
  };
  expect_has(
      plan("--exchange.chunk_mib 48"),
      "Weights that go to another process travel through 48.00 MiB (exchange.chunk_mib) of the CPU's memory");
  EXPECT_EQ(run("train " + yaml() + " --dry-run --explain-memory --output " + folder() + "/planned")
                .err.find("travel through"),
            std::string::npos);
}

}  // namespace
}  // namespace temper
