// A run that sends its weights to another process: temper train --exchange.to, temper batch --weights-from.
#include "tests/cli/exchange_fixture.h"

namespace temper {
namespace {

TEST_F(TrainerSends, AnswersAreThoseOfTheTrainedModel) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  for (const char* mode : {"staged", "direct"}) {
    const auto answers = answer_in_background(std::string("--weights-mode ") + mode);
    const std::string out = std::string("sent_") + mode;
    const Outcome trained = run(sending(out, "--exchange.every_steps 5 --exchange.check_sync true"));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_NE(trained.err.find("exchange: weights go to " + socket() + " after every 5 updates"),
              std::string::npos)
        << trained.err;
    EXPECT_NE(trained.err.find("exchange: sent weights of update 12, "), std::string::npos) << trained.err;
    EXPECT_NE(trained.err.find("parameters and buffers are alike"), std::string::npos) << trained.err;
    const std::string console = read_file(folder() + "/" + out + "/console.log");
    for (const char* update : {"update 5, ", "update 10, ", "update 12, "})
      EXPECT_NE(console.find(std::string("exchange: sent weights of ") + update), std::string::npos)
          << console;
    expect_answers(*answers, 12, "versions", answering("trained.jsonl", "", out + "/model"));
    for (const char* version : {"version 5: ", "version 10: ", "version 12: "})
      EXPECT_NE(answers->log().find(std::string("took weights of ") + version), std::string::npos)
          << answers->log();
  }
  // Sending changes nothing of what is trained.
  EXPECT_EQ(losses(train("unsent", "--train.threads 1")), losses(folder() + "/sent_staged"));
}

TEST_F(TrainerSends, AnAdapterIsInstalledUnderItsName) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  write_file(
      folder() + "/lora.yaml",
      read_file(yaml()) + "adapters:\n  - {name: math, rank: 4}\n  - {name: law, rank: 2, lr: 1e-2}\n");
  const auto answers = answer_in_background("--adapter math=- --adapter law=-");
  const Outcome trained =
      run("train " + folder() + "/lora.yaml --train.threads 1 --output " + folder() + "/lora --exchange.to " +
          socket() + " --exchange.every_steps 6 --exchange.check_sync true");
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const char* name : {"math", "law"})
    EXPECT_NE(trained.err.find(std::string("exchange: sent adapter ") + name + " of update 12, "),
              std::string::npos)
        << trained.err;
  expect_answers(*answers, 12, "adapter_versions",
                 answering("trained.jsonl", "--adapter math=" + folder() + "/lora/adapters/math/adapter"));
  EXPECT_NE(answers->log().find("took adapter law of version 12: "), std::string::npos) << answers->log();
  // The same of a folder that is sent.
  const auto others = answer_in_background("--adapter law=-");
  const std::string send = "weights send " + folder() + "/lora/adapters/law/adapter --to " + socket() +
                           " --as-version 7 --check-sync ";
  expect_refused(send, 2, "adapter");
  expect_refused(send + "--as-adapter math", 2, "adapter 'math' is not awaited here");
  const Outcome sent = run(send + "--as-adapter law");
  EXPECT_EQ(sent.code, 0) << sent.err;
  EXPECT_NE(sent.out.find("parameters and buffers are alike"), std::string::npos) << sent.out;
  expect_answers(*others, 7, "adapter_versions",
                 answering("trained.jsonl", "--adapter law=" + folder() + "/lora/adapters/law/adapter"));
}

TEST_F(TrainerSends, RanksSendWhatTheyOwn) {
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + folder() + "/mixture").code, 0);
  const std::string lora = "adapters:\n  - {name: math, rank: 4}\n";
  struct Case {
    const char *name, *mesh, *model;
    std::string more = {};
  };
  for (const auto& [name, mesh, model, more] :
       {Case{"shard3", "--parallel.shard 2 --parallel.shard_level 3", "model"},
        Case{"tensor", "--parallel.tensor 2", "model"}, Case{"replicas", "", "model"},
        Case{"expert", "--parallel.expert 2", "mixture"},
        Case{"tensor_lora", "--parallel.tensor 2", "model", lora}}) {
    const auto answers = answer_in_background(more.empty() ? "" : "--adapter math=-", model);
    write_file(folder() + "/ranks.yaml", read_file(yaml()) + more);
    const Outcome trained = run("train " + folder() + "/ranks.yaml --ranks 2 --train.steps 4 --model.path " +
                                folder() + "/" + model + " --output " + folder() + "/ranks_" + name +
                                " --exchange.to " + socket() + " --exchange.check_sync true " + mesh);
    EXPECT_EQ(trained.code, 0) << name << trained.err;
    EXPECT_NE(trained.err.find("of update 4, "), std::string::npos) << trained.err;
    EXPECT_NE(trained.err.find("parameters and buffers are alike"), std::string::npos) << trained.err;
    answers->end(SIGTERM);
    EXPECT_NE(answers->log().find("of version 4: "), std::string::npos) << answers->log();
  }
}

// Whatever a recipe keeps besides the model that it trains: rollouts and a critic, a reference, a teacher.
TEST_F(TrainerSends, EveryRecipeSendsWhatItTrains) {
  const std::string model = "model: {path: " + folder() + "/model}\n",
                    steps = "train: {steps: 3, rows_per_step: 4, optimizer: {lr: 1e-3}}\n";
  const std::vector<std::pair<const char*, std::string>> recipes{
      {"preference", "data: {train: [" + folder() + "/pairs_train.jsonl], max_length: 64}\n" + steps},
      {"distill", "data: {train: [" + folder() +
                      "/train.jsonl], max_length: 64}\ndistill: {teacher: " + folder() + "/model}\n" + steps},
      {"grpo",
       "data: {train: [" + folder() +
           "/says_train.jsonl], max_length: 48}\ngrpo: {loss: ppo, group_size: 2, prompts_per_rollout: 4, "
           "sampling: {max_new_tokens: 6}, rewards: [{type: length, target: 3}]}\n" +
           "train: {steps: 3, optimizer: {lr: 1e-3}}\n"}};
  for (const auto& [recipe, keys] : recipes) {
    const auto answers = answer_in_background();
    const std::string file = folder() + "/" + recipe + ".yaml";
    write_file(file, std::string("recipe: ") + recipe + "\n" + model + keys);
    const Outcome trained = run("train " + file + " --output " + folder() + "/sent_" + recipe +
                                " --exchange.to " + socket() + " --exchange.check_sync true");
    EXPECT_EQ(trained.code, 0) << recipe << trained.err;
    EXPECT_NE(trained.err.find("exchange: sent weights of update 3, "), std::string::npos) << trained.err;
    answers->end(SIGTERM);
    for (const char* version : {"version 1: ", "version 2: ", "version 3: "})
      EXPECT_NE(answers->log().find(version), std::string::npos) << recipe << answers->log();
  }
}

// On one GPU through its memory, and through the CPU's to and from it.
TEST_F(TrainerSends, AGpuSendsToAGpuAndToACpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  for (const auto& [name, trains, answers_on, memory] : {std::tuple{"gpu_gpu", "cuda", "cuda", "device"},
                                                         {"gpu_gpu_host", "cuda", "cuda", "host"},
                                                         {"gpu_cpu", "cuda", "cpu", "host"},
                                                         {"cpu_gpu", "cpu", "cuda", "host"}}) {
    remove_all(folder() + "/answers.jsonl");
    BackgroundProgram answers(
        "batch " + folder() + "/model " + folder() + "/questions.jsonl --out " + folder() +
            "/answers.jsonl --samples 20000 --batch 16 -t 1 -n 16 --dtype bfloat16 --device " + answers_on +
            " --weights-from " + socket(),
        folder() + "/answers.log");
    while (!exists(socket()) && answers.runs()) wait_a_moment();
    ASSERT_TRUE(answers.runs()) << answers.log();
    const Outcome trained =
        run(sending(name, std::string("--model.dtype bfloat16 --exchange.check_sync true --device ") +
                              trains + " --exchange.memory " + memory));
    if (trained.err.find("does not let processes share memory") != std::string::npos) continue;
    EXPECT_EQ(trained.code, 0) << name << trained.err;
    EXPECT_NE(trained.err.find("parameters and buffers are alike"), std::string::npos) << trained.err;
    EXPECT_EQ(answers.end(SIGTERM), 3) << answers.log();
    EXPECT_NE(answers.log().find("took weights of version 12: "), std::string::npos) << answers.log();
  }
}

// A receiver that dies or hangs ends the run after a checkpoint, and the same command resumes from there.
TEST_F(TrainerSends, AReceiverThatIsLostCostsNothing) {
  const std::string whole = train("whole", "--train.threads 1");
  for (const bool hangs : {false, true}) {
    const std::string out = hangs ? "hung" : "killed";
    auto answers = answer_in_background();
    const std::string command = sending(out, "--exchange.deadline_seconds 2 --checkpoint.every_steps 0");
    BackgroundProgram training(command, folder() + "/training.log");
    while (answers->log().find("of version 3: ") == std::string::npos && training.runs()) wait_a_moment();
    answers->signal(hangs ? SIGSTOP : SIGKILL);
    while (training.runs()) wait_a_moment();
    EXPECT_EQ(training.end(0), 4) << training.log();
    EXPECT_NE(training.log().find("[exchange] the weights could not be sent: "), std::string::npos)
        << training.log();
    if (hangs) {
      EXPECT_NE(training.log().find("did not answer within 2.0 s"), std::string::npos) << training.log();
    }
    EXPECT_NE(training.log().find("is saved in " + folder() + "/" + out + ": run the same command to resume"),
              std::string::npos)
        << training.log();
    const std::string log = training.log();
    const auto step = std::stoll(log.substr(log.find("\nStep ") + 6));
    EXPECT_GE(step, 3);
    answers.reset();
    answers = answer_in_background();
    const Outcome again = run(command);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(losses(folder() + "/" + out), losses(whole));
    expect_same_model(folder() + "/" + out, whole);
    answers->end(SIGTERM);
    for (const int64_t version : {int64_t{step}, int64_t{12}})  // what it went on with, and the last
      EXPECT_NE(answers->log().find("took weights of version " + std::to_string(version) + ": "),
                std::string::npos)
          << answers->log();
  }
}

// Weights in place of the old ones, of which a sender sends some and ends: passes wait until others come
// whole.
TEST_F(TrainerSends, HalfOfTheWeightsAnswerNothing) {
  const auto answers = answer_in_background("--weights-mode direct");
  const auto written = [] {
    return exists(folder() + "/answers.jsonl") ? file_size(folder() + "/answers.jsonl") : 0;
  };
  while (written() == 0 && answers->runs()) wait_a_moment();
  {
    const auto folder_of_weights = checkpoints::ModelFolder::open(folder() + "/model");
    const WeightTable table =
        layers::decoder_weight_table(models::configure(folder_of_weights.config(), "config.json"));
    exchange::Sender sender(socket(), table, {.names = exchange::Names::kCheckpoint, .chunk_bytes = 1 << 16});
    sender.begin(7);
    for (const char* name : {"model.embed_tokens.weight", "model.norm.weight"})
      sender.add(name, folder_of_weights.tensor(name));
  }
  while (answers->log().find("partly new and cannot be used") == std::string::npos && answers->runs())
    wait_a_moment();
  const int64_t before = written();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(written(), before) << answers->log();
  const Outcome sent =
      run("weights send " + folder() + "/model --to " + socket() + " --as-version 8 --check-sync");
  EXPECT_EQ(sent.code, 0) << sent.err;
  while (answers_in(folder() + "/answers.jsonl", "versions").count(8) == 0 && answers->runs())
    wait_a_moment();
  EXPECT_EQ(answers->end(SIGTERM), 3) << answers->log();
  EXPECT_EQ(answers_in(folder() + "/answers.jsonl", "versions").count(7), 0u);
}

TEST_F(TrainerSends, ARunMayTrainOnWithoutItsReceiver) {
  auto answers = answer_in_background();
  BackgroundProgram training(sending("alone", "--exchange.on_error continue"), folder() + "/training.log");
  while (answers->log().find("of version 3: ") == std::string::npos && training.runs()) wait_a_moment();
  answers->end(SIGKILL);
  while (training.runs()) wait_a_moment();
  EXPECT_EQ(training.end(0), 0) << training.log();
  EXPECT_NE(training.log().find("weights of update 12 were not taken"), std::string::npos) << training.log();
  EXPECT_TRUE(exists(folder() + "/alone/model/model.safetensors"));
}

TEST_F(TrainerSends, WhatCannotBeSentIsRefusedBeforeTraining) {
  expect_refused(sending("none"), 2, "no process takes weights there");
  EXPECT_FALSE(exists(folder() + "/none/checkpoints"));
  expect_refused(sending("none", "--exchange.memory device"), 2, "[exchange.memory] is device");
  expect_refused("train " + yaml() + " --output " + folder() + "/none --exchange.check_sync true", 2,
                 "[exchange.check_sync] is true, but exchange.to names no process that gets weights");
  expect_refused(answering("no.jsonl", "--weights-mode direct"), 2, "without --weights-from");
  expect_refused(answering("no.jsonl", "--weights-mode all --weights-from " + socket()), 2,
                 "expected staged or direct");
  expect_refused(answering("no.jsonl", "--adapter math=-"), 2, "name the socket with --weights-from");
  Json config = Json::parse_file(folder() + "/model/config.json");
  config.set("num_hidden_layers", 1);
  make_directories(folder() + "/shallow.config");
  write_file(folder() + "/shallow.config/config.json", config.dump());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    write_file(folder() + "/shallow.config/" + name, read_file(folder() + "/model/" + name));
  ASSERT_EQ(run("init " + folder() + "/shallow.config " + folder() + "/shallow").code, 0);
  const auto answers = answer_in_background("", "shallow");
  expect_refused(sending("none"), 2, "the sender's model has other names, shapes or dtypes");
  EXPECT_FALSE(exists(folder() + "/none/checkpoints"));
  const std::string lora = folder() + "/one_lora.yaml";
  write_file(lora, read_file(yaml()) + "adapters:\n  - {name: math, rank: 4}\n");
  answers->end(SIGKILL);
  const auto others = answer_in_background("--adapter law=-");
  const Outcome unknown =
      run("train " + lora + " --output " + folder() + "/unknown --exchange.to " + socket());
  EXPECT_EQ(unknown.code, 4) << unknown.err;
  EXPECT_NE(unknown.err.find("adapter 'math' is not awaited here; start with --adapter math=-"),
            std::string::npos)
      << unknown.err;
}

}  // namespace
}  // namespace temper
