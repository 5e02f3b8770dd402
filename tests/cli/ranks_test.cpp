// Several ranks, as threads and as processes that mpirun starts, train what one rank trains.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/cli/ranks_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class Ranks : public RanksOfARun {};

TEST_F(Ranks, LearnWhatOneRankLearns) {
  const std::string flags = "--eval.every_steps 6 --data.eval_fraction 0.02 ", one = train("one", flags);
  for (const int ranks : {4, 8})
    expect_same_course(train("of" + std::to_string(ranks), flags + "--ranks " + std::to_string(ranks)), one);
  expect_same_course(train_in_processes("of2", flags + "--ranks 2"), one);
}

// Every collective of a mesh, between processes: the bits are those of ranks that are threads.
TEST_F(Ranks, OfSeveralProcessesGiveTheBitsOfThreads) {
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + folder() + "/mixture_of_processes").code, 0);
  const std::string flags = "--model.path " + folder() + "/mixture_of_processes --train.steps 4 --ranks 4 ";
  for (const char* mesh : {"--parallel.expert 2 --parallel.tensor 2",
                           "--parallel.expert 2 --parallel.shard 2 --parallel.shard_level 3"})
    expect_same_model(train_in_processes(fmt::format("processes {}", mesh), flags + mesh),
                      train(fmt::format("threads {}", mesh), flags + mesh));
}

// Masters and moments in parts; with gradients that are summed among those that have the same part.
TEST_F(Ranks, ShareOneOptimizerState) {
  const std::string flags = "--eval.every_steps 6 --data.eval_fraction 0.02 ", one = train("unshared", flags);
  for (const auto& [ranks, shard] : {std::pair{2, 2}, {4, 2}, {4, 4}, {8, 4}}) {
    const std::string name = fmt::format("shared{}by{}", ranks, shard);
    expect_same_course(train(name, fmt::format("{} --ranks {} --parallel.shard {}", flags, ranks, shard)),
                       one);
  }
  expect_same_course(train("shared_auto", flags + "--ranks 4 --parallel.shard auto"), one);
  // Gradients and matrices in parts, too, of one micro-batch and of several.
  expect_on_meshes("levels", flags, one,
                   {"--ranks 4 --parallel.shard 4 --parallel.shard_level 2",
                    "--ranks 4 --parallel.shard 4 --parallel.shard_level 3",
                    "--ranks 2 --parallel.shard 2 --parallel.shard_level 2 --train.micro_batch_tokens 32",
                    "--ranks 2 --parallel.shard 2 --parallel.shard_level 3 --train.micro_batch_tokens 32",
                    "--ranks 4 --parallel.shard 2 --parallel.tensor 2 --parallel.shard_level 3 "
                    "--train.activation_checkpointing full"});
}

// The same gradients are summed in the same order, and random bits are the parameters' elements': the same
// bits as with whole states on as many ranks, the norm that clips among them.
TEST_F(Ranks, ShareStatesWithoutAnotherBit) {
  for (const char* flags :
       {"", "--model.dtype bfloat16 ",
        "--model.dtype bfloat16 --train.master_weights false --train.optimizer.moments bfloat16 "}) {
    const std::string all = std::string(flags) + "--train.max_grad_norm 0.5 --ranks 4 ";
    const std::string whole = train("bits_whole", all),
                      shared = train("bits_shared", all + "--parallel.shard 4"),
                      mixed = train("bits_mixed", all + "--parallel.shard 2"),
                      gradients =
                          train("bits_gradients", all + "--parallel.shard 4 --parallel.shard_level 2"),
                      matrices = train("bits_matrices", all + "--parallel.shard 4 --parallel.shard_level 3");
    expect_same_model(shared, whole);
    expect_same_model(gradients, whole);
    expect_same_model(matrices, whole);
    for (const std::string& out : {whole, shared, mixed, gradients, matrices})
      std::system(("rm -r " + out).c_str());
  }
}

// A state holds whole tensors, whoever had which part of them.
TEST_F(Ranks, ResumeStatesOfAnyLayout) {
  const std::string flags = "--train.schedule.type constant --train.max_grad_norm 0 --ranks 4 ",
                    straight = train("layouts_straight", flags);
  const std::string out = train("layouts", flags + "--train.steps 4");
  int64_t steps = 4;
  for (const char* layout : {"--parallel.shard 2", "--parallel.shard 4", "", "--parallel.shard auto"})
    train("layouts", fmt::format("{} {} --train.steps {}", flags, layout, steps += 2));
  expect_same_course(out, straight);
}

// Heads, widths and the vocabulary in parts, with a state that is shared, too, and tokens that are divided
// between layers or not.
TEST_F(Ranks, DivideLayers) {
  const std::string flags = "--eval.every_steps 6 --data.eval_fraction 0.02 ",
                    one = train("undivided", flags);
  expect_on_meshes("divided", flags, one,
                   {"--ranks 2 --parallel.tensor 2 --parallel.check true",
                    "--ranks 2 --parallel.tensor 2 --parallel.sequence false --parallel.check true",
                    "--ranks 4 --parallel.tensor 2", "--ranks 4 --parallel.tensor 2 --parallel.shard 2",
                    "--ranks 4 --parallel.tensor 4"});
}

// Experts on ranks of their own, which have rows of their own, some fewer than others. (After six steps the
// evaluation has a token whose choice hangs on rounding.)
TEST_F(Ranks, DivideExperts) {
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + folder() + "/divided_mixture").code, 0);
  const std::string flags = "--model.path " + folder() +
                            "/divided_mixture --train.router.balance_loss 0.01 --train.router.balance_scope "
                            "global --train.rows_per_step 3 --train.micro_batch_tokens 64 "
                            "--eval.every_steps 4 --data.eval_fraction 0.02 ",
                    one = train("all_experts", flags);
  expect_on_meshes("experts", flags, one,
                   {"--ranks 2 --parallel.expert 2", "--ranks 4 --parallel.expert 4",
                    "--ranks 4 --parallel.expert 2 --parallel.shard 2",
                    "--ranks 4 --parallel.expert 2 --parallel.tensor 2",
                    "--ranks 8 --parallel.expert 2 --parallel.tensor 2 --parallel.shard 2"});
}

// A run that was saved on one mesh and resumes on another has the bits that it was saved with.
TEST_F(Ranks, StatesAreThoseOfAnyMesh) {
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + folder() + "/any_mesh").code, 0);
  const std::string flags = "--train.schedule.type constant --model.path " + folder() + "/any_mesh ";
  const std::vector<std::string> meshes{
      "--ranks 1",
      "--ranks 2 --parallel.shard 2",
      "--ranks 2 --parallel.tensor 2",
      "--ranks 2 --parallel.expert 2",
      "--ranks 4 --parallel.tensor 2 --parallel.shard 2",
      "--ranks 4 --parallel.expert 2 --parallel.tensor 2",
      "--ranks 4 --parallel.expert 2 --parallel.shard 2",
      "--ranks 2 --parallel.shard 2 --parallel.shard_level 3",
      "--ranks 4 --parallel.tensor 2 --parallel.shard 2 --parallel.shard_level 3"};
  for (size_t i = 0; i < meshes.size(); ++i) {
    const std::string& mesh = meshes[i];
    const std::string out = train("saved by " + mesh, flags + mesh + " --train.steps 3");
    const std::string state = out + "/checkpoints/" + newest_state(out) + "/manifest.json";
    const std::string saved = read_file(state), model = read_file(out + "/model/model.safetensors");
    for (const size_t further : {size_t{1}, size_t{3}}) {
      const std::string& other = meshes[(i + further) % meshes.size()];
      // Nothing is left to train: the state is read and the model written.
      std::system(fmt::format("rm -r '{}/model'", out).c_str());
      train("saved by " + mesh, flags + other + " --train.steps 3");
      EXPECT_EQ(read_file(out + "/model/model.safetensors"), model) << mesh << ", then " << other;
      EXPECT_EQ(read_file(state), saved);
    }
  }
}

TEST_F(Ranks, RefuseMeshesThatDoNotFit) {
  const auto error = [](const std::string& flags) {
    const Outcome outcome = run("train " + yaml() + " --output " + folder() + "/refused " + flags);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return outcome.err;
  };
  expect_has(error("--ranks 4 --parallel.tensor 3"), "make 3 ranks, but there are 4; possible are ");
  // Three heads cannot be divided, and what needs more memory than a rank may use is not proposed.
  EXPECT_EQ(error("--ranks 4 --parallel.tensor 3").find("tensor: "), std::string::npos);
  expect_has(error("--ranks 4 --parallel.tensor 3 --memory_limit_mib 1"),
             "no mesh of this number of ranks fits the model and the memory");
  expect_has(error("--ranks 2 --parallel.expert 2"), "[parallel.expert] is 2, but the model has no experts");
  expect_has(error("--ranks 2 --parallel.tensor auto --parallel.shard auto"),
             "several of shard, context, tensor and expert");
  expect_has(error("--ranks 2 --parallel.sequence false"), "parallel.tensor is 1; leave it out");
  expect_has(error("--ranks 8 --parallel.tensor 8"), "which 8 ranks cannot divide equally");
  expect_has(error("--ranks 2 --parallel.shard_level 3"), "no ranks share weights or states");
  expect_has(error("--ranks 2 --parallel.shard 2 --parallel.shard_level 4"), "expected 1, 2 or 3");
}

// Rows that do not divide, micro-batches of a row, some ranks without rows.
TEST_F(Ranks, MayHaveNoRows) {
  const std::string flags = "--train.rows_per_step 3 --train.micro_batch_tokens 64 ";
  expect_same_course(train("few4", flags + "--ranks 4"), train("few", flags));
}

TEST_F(Ranks, LearnAdapters) {
  const std::string flags = "--adapters '[{name: a, rank: 4, dropout: 0.1}, {name: b, rank: 2}]' ",
                    one = train("lora", flags), two = train("lora2", flags + "--ranks 2");
  for (const char* adapter : {"/adapters/a", "/adapters/b"}) expect_same_course(two + adapter, one + adapter);
}

TEST_F(Ranks, LearnPreferences) {
  const std::string flags = "--recipe preference --preference.precompute true --data.train " + folder() +
                            "/pairs_train.jsonl --data.max_length 96 --train.steps 4 ";
  expect_same_course(train("dpo2", flags + "--ranks 2"), train("dpo", flags));
}

TEST_F(Ranks, LearnMixtures) {
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + folder() + "/mixture").code, 0);
  const std::string flags = "--model.path " + folder() +
                            "/mixture --train.router.balance_loss 0.01 --train.router.balance_scope global ";
  expect_same_course(train("moe2", flags + "--ranks 2"), train("moe", flags));
}

TEST_F(Ranks, OfTheSameNumberGiveTheSameBits) {
  expect_same_model(train_in_processes("bits1", "--ranks 3"), train("bits2", "--ranks 3"));
}

// A rank that is killed takes all others with it; the run resumes from its newest state, bit for bit.
TEST_F(Ranks, AreKilledTogetherAndResume) {
  const std::string whole = train("undisturbed", "--train.steps 60 --ranks 2"), out = folder() + "/killed";
  const std::string command =
      std::string(TEMPER_BINARY) + " train " + yaml() + " --train.steps 60 --ranks 2 --output " + out;
  // Also where the launcher was the one that was killed.
  const std::string all_gone =
      "for i in $(seq 100); do pgrep -f 'temper train .*[k]illed$' >/dev/null || exit 0; sleep 0.1; done; "
      "exit "
      "1";
  for (int kill = 1; kill <= 3; ++kill) {
    const std::string before = newest_state(out);
    const auto start = std::chrono::steady_clock::now();
    // One of the ranks, as soon as this process has saved something.
    const std::string killer = "for i in $(seq 400); do [ \"$(ls " + out +
                               "/checkpoints 2>/dev/null | grep ^step- | tail -1)\" = '" + before +
                               "' ] || break; sleep 0.02; done; pkill -KILL " +
                               (kill % 2 == 0 ? "-n" : "-o") + " -f 'temper train .*[k]illed$'";
    const int status = std::system(
        ("(" + killer + ") & " + command + " >" + out + ".text 2>&1; code=$?; wait; exit $code").c_str());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 20);
    EXPECT_EQ(std::system(all_gone.c_str()), 0) << "a rank is left after ten seconds";
    if (WEXITSTATUS(status) == 0) break;  // it was done before
  }
  ASSERT_EQ(run("train " + yaml() + " --train.steps 60 --ranks 2 --output " + out).code, 0);
  expect_same_model(out, whole);
}

// Whenever it comes, also while the launcher has no rank yet to pass it on to.
TEST_F(Ranks, EndWhenTheyAreInterrupted) {
  for (const double seconds : {0.03, 0.06, 0.1, 0.3}) {
    const auto start = std::chrono::steady_clock::now();
    std::system(
        fmt::format("timeout -s INT {} {} train {} --train.steps 100000 --ranks 2 --output {}/interrupted "
                    ">/dev/null 2>&1",
                    seconds, TEMPER_BINARY, yaml(), folder())
            .c_str());
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    EXPECT_LT(passed.count(), 20) << seconds;
  }
}

TEST_F(Ranks, ResumeWithAnotherNumberOfRanks) {
  const std::string constant = "--train.schedule.type constant ";
  const std::string out = train("grown", constant + "--train.steps 5");
  EXPECT_EQ(newest_state(out), "step-000005");
  train("grown", constant + "--train.steps 12 --ranks 4");
  expect_same_course(out, train("straight", constant));
}

// Of any number of ranks, of which none is started.
TEST_F(Ranks, ArePlannedOnOne) {
  const auto needed = [&](const std::string& flags) {
    const Outcome outcome =
        run("train " + yaml() + " --output " + folder() +
            "/planned --train.rows_per_step 64 --train.micro_batch_tokens 64 --dry-run " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const size_t at = outcome.out.find("memory         about ");
    EXPECT_NE(at, std::string::npos) << outcome.out;
    return std::pair{std::stod(outcome.out.substr(at + 21)), outcome.out};
  };
  const auto [one, alone] = needed("");
  EXPECT_EQ(alone.find("ranks   "), std::string::npos);
  const auto [whole, replicated] = needed("--ranks 16");
  EXPECT_NE(replicated.find("ranks          16: replicate 16, shard 1; memory is that of each"),
            std::string::npos)
      << replicated;
  const auto [part, shared] = needed("--ranks 16 --parallel.shard auto");
  EXPECT_NE(shared.find("ranks          16: replicate 1, shard 16"), std::string::npos) << shared;
  EXPECT_LE(whole, one);
  EXPECT_LT(part, 0.75 * whole) << "moments are half of what a small model takes";
  EXPECT_FALSE(exists(folder() + "/planned"));
}

TEST_F(Ranks, AreVerifiedBeforeARun) {
  for (const char* layout :
       {"--ranks 2", "--ranks 4 --parallel.shard 2", "--ranks 4 --parallel.shard auto"}) {
    const Outcome outcome = run("verify-layout " + yaml() + " " + layout);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("gradients"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("quantizers"), std::string::npos) << outcome.out;
  }
  const Outcome quantized = run("verify-layout " + yaml() + " --quantize.preset INT8_WEIGHT_ONLY");
  EXPECT_NE(quantized.out.find("\nquantizers      left out: "), std::string::npos) << quantized.out;
  const Outcome refused = run("verify-layout " + yaml() + " --ranks 3 --parallel.shard 2");
  EXPECT_EQ(refused.code, 2) << refused.err;
}

TEST_F(Ranks, MistakesAreReportedOnce) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run("train " + yaml() + " --output " + folder() + "/refused " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  };
  const std::string three = refusal("--ranks 3 --parallel.replicate 2");
  EXPECT_TRUE(three.starts_with(
      "temper: [parallel] replicate 2 and shard 1 make 2 ranks, but there are 3; possible are {replicate: 3, "
      "shard: 1} (about "))
      << three;
  for (const char* mesh :
       {"{replicate: 1, shard: 3} (about ", "{replicate: 1, shard: 3, shard_level: 3} (about "})
    expect_has(three, mesh);
  EXPECT_EQ(refusal("--ranks 2 --parallel.shard two"),
            "temper: [parallel.shard] is 'two'; expected a number of ranks, at least 1, or auto\n");
  EXPECT_EQ(refusal("--ranks 0"),
            "temper: [command line] --ranks is '0'; expected a number of ranks, 1 to 65536\n");
  EXPECT_TRUE(refusal("--ranks 60000 --train.rows_per_step 60000")
                  .starts_with("temper: [command line] --ranks is 60000, but "));
}

TEST_F(Ranks, WithDifferentConfigurationsAreRefused) {
  const std::string one = std::string(TEMPER_BINARY) + " train " + yaml() + " --output " + folder() +
                          "/differ ",
                    text = folder() + "/differ.text";
  const int status = std::system(
      ("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --quiet --oversubscribe -n 1 " +
       one + " : -n 1 " + one + "--train.optimizer.lr 2e-3 >" + text + " 2>&1")
          .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(read_file(text),
            "temper: [ranks] rank 1 has another configuration than rank 0: '    lr: 0.001' and '    lr: "
            "0.002'; all "
            "ranks must have the same\n");
}

}  // namespace
}  // namespace temper
