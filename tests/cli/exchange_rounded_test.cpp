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

// What the other process holds of the model now.
std::map<std::string, exchange::ParameterHash> held_at(const std::string& socket, const std::string& model) {
  const auto folder = checkpoints::ModelFolder::open(model);
  const WeightTable table = layers::decoder_weight_table(models::configure(folder.config(), "config.json"));
  return exchange::Sender(socket, table).hashes();
}

// Adapters learn on a base whose weights quantizers have rounded: it goes to each process once, before them.
TEST_F(TrainerSends, AdaptersBehindTheirRoundedBase) {
  const std::string lora = folder() + "/rounded_lora.yaml";
  write_file(lora, read_file(yaml()) +
                       "adapters: [{name: math, rank: 4}, {name: law, rank: 2}]\n"
                       "quantize: {preset: INT8_WEIGHT_ONLY}\n");
  std::map<std::string, exchange::ParameterHash> whole;
  for (const std::string mesh : {"", " --ranks 2 --parallel.shard 2 --parallel.shard_level 3"}) {
    const auto answers = answer_beside("--adapter math=- --adapter law=-");
    const auto loaded = held_at(socket(), folder() + "/model");
    const Outcome trained = run("train " + lora + " --train.threads 1 --output " + folder() +
                                "/rounded_lora" + std::to_string(mesh.size()) + " --exchange.to " + socket() +
                                " --exchange.every_steps 6 --exchange.check_sync true" + mesh);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto held = held_at(socket(), folder() + "/model");
    const std::vector<std::string> rounded = exchange::differences(held, loaded);
    EXPECT_EQ(rounded.size(), 12u);  // four matrices of each layer, and neither embedding nor norms
    for (const std::string& line : rounded) EXPECT_NE(line.find("layers."), std::string::npos) << line;
    if (whole.empty()) whole = held;
    EXPECT_EQ(held, whole) << mesh;
    EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
    const std::string log = answers->log();
    const size_t base = log.find("took weights of version 6: "), first = log.find("took adapter ");
    EXPECT_LT(base, first) << log;
    EXPECT_EQ(log.find("took weights", base + 1), std::string::npos) << log;
    for (const char* part : {"took adapter math of version 12: ", "took adapter law of version 12: "})
      EXPECT_NE(log.find(part), std::string::npos) << log;
  }
}

TEST_F(TrainerSends, AnotherProcessGetsTheRoundedBaseToo) {
  const std::string lora = folder() + "/rounded_lora.yaml", adapter = "--adapter math=-";
  write_file(lora,
             read_file(yaml()) + "adapters: [{name: math, rank: 4}]\nquantize: {preset: INT8_WEIGHT_ONLY}\n");
  auto answers = answer_beside(adapter);
  Beside training("train " + lora + " --train.threads 1 --train.steps 100000 --output " + folder() +
                      "/rounded_twice --exchange.on_error continue --exchange.to " + socket(),
                  folder() + "/training.log");
  const auto took = [&](const Beside& who, const char* what) {
    return who.log().find(what) != std::string::npos;
  };
  while (!took(*answers, "took adapter math of version 2: ") && training.runs()) wait_a_moment();
  ASSERT_TRUE(answers->runs() && training.runs()) << answers->log() << training.log();
  const auto first = held_at(socket(), folder() + "/model");
  answers->end(SIGKILL);
  for (const std::string& left : {socket(), folder() + "/answers.log"}) remove_all(left);
  answers = answer_beside(adapter);
  while (!took(*answers, "took adapter math") && training.runs()) wait_a_moment();
  EXPECT_TRUE(took(*answers, "took weights of version ")) << answers->log() << training.log();
  EXPECT_EQ(held_at(socket(), folder() + "/model"), first);
  EXPECT_EQ(training.end(SIGTERM), 3) << training.log();
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
