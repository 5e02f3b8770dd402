// The program as a user runs it: exit codes, messages, files, and that a stopped run continues bit for bit.
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

TEST_F(Cli, ARunMakesEverythingItPromises) {
  const std::string out = folder() + "/promises";
  const Outcome outcome = run("train " + yaml() + " --output " + out + " --data.eval [" + folder() +
                              "/eval.jsonl] --eval.exact_match 4");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* name : {"config.yaml", "metrics.jsonl", "loss.svg", "summary.json",
                           "model/model.safetensors", "model/config.json", "model/tokenizer.json",
                           "best/model.safetensors", "checkpoints/step-000012/manifest.json"})
    EXPECT_TRUE(exists(join_path(out, name))) << name;
  EXPECT_FALSE(list_directory(out + "/tensorboard").empty());
  const Json summary = Json::parse_file(out + "/summary.json");
  for (const char* key :
       {"exact_match_before", "exact_match_after", "train_seconds", "tokens_per_second", "peak_memory_bytes"})
    EXPECT_TRUE(summary.at(key).is_number()) << key;
  EXPECT_EQ(losses(out).size(), 12u);
  const Outcome answer = run("generate " + out + "/model -p 'What is 10 + 10?' -n 4 --greedy");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(run("chat " + out + "/model -n 4", "What is 1 + 1?\n/clear\n/help\nAnd 2 + 2?\n/exit\n").code, 0);
}

TEST_F(Cli, AStoppedRunContinuesBitForBit) {
  const std::string whole = folder() + "/whole", parts = folder() + "/parts";
  ASSERT_EQ(run("train " + yaml() + " --output " + whole).code, 0);
  int stops = 0;
  for (int attempt = 0; attempt < 40; ++attempt) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string log = folder() + "/parts.log";
      ::freopen(log.c_str(), "a", stderr);
      ::execl(TEMPER_BINARY, "temper", "train", yaml().c_str(), "--output", parts.c_str(),
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
    // Stopped as soon as it has made a step that was not there before, whichever that is.
    const size_t before = exists(parts + "/metrics.jsonl") ? losses(parts).size() : 0;
    for (int i = 0; i < 6000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (exists(parts + "/metrics.jsonl") && losses(parts).size() > before) break;
      if (::kill(child, 0) != 0) break;
    }
    ::kill(child, SIGTERM);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << "\n"
                                   << read_file(folder() + "/parts.log");
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), 3) << read_file(folder() + "/parts.log");
    ++stops;
  }
  EXPECT_GE(stops, 1);
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(read_file(parts + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
}

TEST_F(Cli, AProfileSaysWhereTimeGoes) {
  const std::string run_folder = folder() + "/profiled";
  const Outcome outcome = run("train " + yaml() + " --profile --train.steps 5 --output " + run_folder);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("profile of 3 steps"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("linear backward"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("limits, measured here: matrix multiplications (mul)"), std::string::npos)
      << outcome.err;
  const Json trace = Json::parse_file(run_folder + "/trace.json");
  int steps = 0;
  for (const Json& event : trace.at("traceEvents").as_array()) steps += event.at("name") == Json("step");
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(run("train " + yaml() + " --train.steps 5 --output " + folder() + "/unprofiled").code, 0);
  EXPECT_EQ(losses(run_folder), losses(folder() + "/unprofiled"));
}

TEST_F(Cli, DryRunTrainsNothing) {
  const std::string out = folder() + "/dry";
  const Outcome outcome = run("train " + yaml() + " --output " + out + " --dry-run");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Nothing was trained"), std::string::npos);
  EXPECT_FALSE(exists(out));
}

TEST_F(Cli, InspectShowsTargets) {
  const Outcome outcome = run("data inspect " + yaml() + " --rows 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("<|im_end|>|]]"), std::string::npos) << outcome.out;
}

TEST_F(Cli, AnotherConfigurationDoesNotContinueARun) {
  const std::string out = folder() + "/conflict";
  ASSERT_EQ(run("train " + yaml() + " --output " + out).code, 0);
  expect_refused("train " + yaml() + " --output " + out + " --train.optimizer.lr 1e-2", 2,
                 "train.optimizer.lr: 0.001, now 0.01");
  expect_refused("train " + yaml() + " --output " + out + " --train.resume never", 2, "holds a run already");
}

}  // namespace
}  // namespace temper
