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
    const auto answers = answer_in_background();
    const Outcome trained = run(sending(out,
                                        "--quantize.preset INT8_WEIGHT_ONLY --exchange.every_steps 6 "
                                        "--exchange.check_sync true") +
                                mesh);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_NE(trained.err.find("parameters and buffers are alike"), std::string::npos) << trained.err;
    EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
    EXPECT_NE(answers->log().find("took weights of version 12: "), std::string::npos) << answers->log();
    // Training continues with the weights as they are.
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
    const auto answers = answer_in_background("--adapter math=- --adapter law=-");
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
  auto answers = answer_in_background(adapter);
  BackgroundProgram training("train " + lora + " --train.threads 1 --train.steps 100000 --output " +
                                 folder() + "/rounded_twice --exchange.on_error continue --exchange.to " +
                                 socket(),
                             folder() + "/training.log");
  const auto took = [&](const BackgroundProgram& who, const char* what) {
    return who.log().find(what) != std::string::npos;
  };
  while (!took(*answers, "took adapter math of version 2: ") && training.runs()) wait_a_moment();
  ASSERT_TRUE(answers->runs() && training.runs()) << answers->log() << training.log();
  const auto first = held_at(socket(), folder() + "/model");
  answers->end(SIGKILL);
  for (const std::string& left : {socket(), folder() + "/answers.log"}) remove_all(left);
  answers = answer_in_background(adapter);
  while (!took(*answers, "took adapter math") && training.runs()) wait_a_moment();
  EXPECT_TRUE(took(*answers, "took weights of version ")) << answers->log() << training.log();
  EXPECT_EQ(held_at(socket(), folder() + "/model"), first);
  EXPECT_EQ(training.end(SIGTERM), 3) << training.log();
}

std::string with_quantizers(const std::string& folder, const std::string& base, const std::string& more) {
  const std::string path = folder + "/rounded_inputs.yaml";
  write_file(path, base + more);
  return path;
}

// Inputs are rounded in both processes, by scales that come with the weights.
TEST_F(TrainerSends, QuantizersOfInputs) {
  const std::string config =
      with_quantizers(folder(), read_file(yaml()), "quantize: {preset: INT8_SMOOTHQUANT}\n");
  const std::string to =
      " --train.threads 1 --exchange.every_steps 6 --exchange.check_sync true --exchange.to " + socket();
  std::map<std::string, exchange::ParameterHash> first;
  for (const std::string mesh : {"", " --ranks 2 --parallel.tensor 2"}) {
    const auto answers = answer_in_background("--quantize " + config);
    const std::string out = folder() + "/rounded_inputs" + std::to_string(mesh.size());
    const Outcome trained = run("train " + config + to + " --output " + out + mesh);
    ASSERT_EQ(trained.code, 0) << trained.err;
    // An amax of each of twelve inputs, and their factors.
    const size_t parameters =
        layers::decoder_weight_table(
            models::configure(Json::parse_file(folder() + "/model/config.json"), "config.json"))
            .specs()
            .size();
    expect_has(trained.err, fmt::format("all {} parameters and buffers are alike", parameters + 24));
    const auto some = [&] { return answers_in(folder() + "/answers.jsonl", "versions").contains(12); };
    while (!some() && answers->runs()) wait_a_moment();
    EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
    expect_has(answers->log(), "took weights of version 6: ");
    expect_has(answers->log(), "took weights of version 12: ");
  }
  // Adapters on a base with such quantizers.
  const std::string lora = folder() + "/rounded_inputs_lora.yaml";
  write_file(lora, read_file(config) + "adapters: [{name: math, rank: 4}]\n");
  const auto answers = answer_in_background("--adapter math=- --quantize " + config);
  const Outcome trained = run("train " + lora + to + " --output " + folder() + "/rounded_inputs_lora");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
  for (const char* part : {"took weights of version 6: ", "took adapter math of version 12: "})
    expect_has(answers->log(), part);
}

TEST_F(TrainerSends, RolloutsOfQuantizedInputs) {
  const std::string config = folder() + "/rounded_grpo.yaml";
  write_file(config, "recipe: grpo\nmodel: {path: " + folder() + "/model}\ndata: {train: [" + folder() +
                         "/questions.jsonl], max_length: 48}\ngrpo: {group_size: 4, prompts_per_rollout: 4, "
                         "sampling: {max_new_tokens: 7}, rewards: [{type: pattern, pattern: '[0-9]'}]}\n"
                         "quantize: {preset: FP8}\ntrain: {steps: 4, threads: 1, optimizer: {lr: 1e-3}}\n");
  const auto answers = answer_in_background("--quantize " + config);
  const Outcome trained = run("train " + config + " --output " + folder() + "/rounded_grpo --exchange.to " +
                              socket() + " --exchange.check_sync true");
  ASSERT_EQ(trained.code, 0) << trained.err;
  expect_has(trained.err, "parameters and buffers are alike");
  EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
  for (const char* version : {"1", "2", "3", "4"})
    expect_has(answers->log(), fmt::format("took weights of version {}: ", version));
}

TEST_F(TrainerSends, OtherQuantizersOfInputsAreRefusedAtTheStart) {
  const std::string base = read_file(yaml()), out = folder() + "/refused_inputs",
                    config = with_quantizers(folder(), base, "quantize: {preset: FP8}\n"),
                    sends = "train " + config + " --output " + out + " --exchange.to " + socket();
  {
    const auto answers = answer_in_background();
    expect_refused(sends, 2, "the receiver does not; start it with --quantize RUN.yaml");
    EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
  }
  const auto answers = answer_in_background("--quantize " + config);
  expect_refused(sends + " --quantize.preset INT8", 2,
                 "the sender has int8 by tensor, calibrated, the receiver fp8 by tensor, calibrated");
  EXPECT_FALSE(exists(out + "/checkpoints"));
  expect_refused("weights send " + folder() + "/model --to " + socket(), 2,
                 "the sender does not; start it without --quantize");
  EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
  expect_refused(sends + " --quantize.preset W4A8_MXFP4_FP8", 2,
                 "scales its input by the largest magnitude of a pass, which differs between the process of "
                 "exchange and training");
  const std::string from = " --weights-from " + socket();
  expect_refused(answering("no.jsonl", "--quantize " + config), 2,
                 "[--quantize] is written without --weights-from");
  expect_refused(answering("no.jsonl", "--base-dtype nf4 --quantize " + config + from), 2,
                 "not taken by a model in --base-dtype");
  expect_refused(answering("no.jsonl", "--quantize " + yaml() + from), 2, "quantizes nothing");
  write_file(folder() + "/weights_alone.yaml", base + "quantize: {preset: INT8_WEIGHT_ONLY}\n");
  expect_refused(answering("no.jsonl", "--quantize " + folder() + "/weights_alone.yaml" + from), 2,
                 "quantizes weights alone, which come rounded; leave it out");
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
                .out.find("travel through"),
            std::string::npos);
}

}  // namespace
}  // namespace temper
