// The program as a user runs it: exit codes, messages, files, and that a stopped run continues bit for bit.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/files.h"
#include "base/json.h"

namespace temper {
namespace {

struct Outcome {
  int code = -1;
  std::string out, err;
};

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryDirectory;
    const std::string folder = shared_->path();
    ASSERT_EQ(std::system(("python3 " TEMPER_SOURCE_DIR "/examples/addition/prepare.py " + folder).c_str()),
              0);
    ASSERT_EQ(run("init " + folder + "/qwen3-tiny " + folder + "/model").code, 0);
    write_file(folder + "/run.yaml",
               "output: " + folder + "/run\nmodel:\n  path: " + folder + "/model\ndata:\n  train: [" +
                   folder +
                   "/train.jsonl]\n  max_length: 64\ntrain:\n  steps: 12\n  rows_per_step: 4\n"
                   "  optimizer:\n    lr: 1e-3\ncheckpoint:\n  every_steps: 5\n");
  }
  static void TearDownTestSuite() { delete shared_; }

  static std::string folder() { return shared_->path(); }
  static std::string yaml() { return folder() + "/run.yaml"; }

  static Outcome run(const std::string& arguments, const std::string& input = "") {
    const TemporaryDirectory files;
    write_file(files / "in", input);
    const std::string command = std::string(TEMPER_BINARY) + " " + arguments + " <" + (files / "in") + " >" +
                                (files / "out") + " 2>" + (files / "err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(files / "out"),
            read_file(files / "err")};
  }

  static void expect_refused(const std::string& arguments, int code, const std::string& message) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.find("defect"), std::string::npos) << outcome.err;
  }

  // The losses of a run's metrics file, by step.
  static std::vector<std::string> losses(const std::string& run_folder) {
    std::vector<std::string> values;
    const std::string text = read_file(run_folder + "/metrics.jsonl");
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const Json line = Json::parse(std::string_view(text).substr(begin, end - begin), "metrics");
      if (const Json* loss = line.find("loss"))
        values.push_back(line.at("step").dump() + " " + loss->dump() + " " + line.at("grad_norm").dump());
    }
    return values;
  }

  static inline TemporaryDirectory* shared_ = nullptr;
};

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
       {"accuracy_before", "accuracy_after", "train_seconds", "tokens_per_second", "peak_memory_bytes"})
    EXPECT_TRUE(summary.at(key).is_number()) << key;
  EXPECT_EQ(losses(out).size(), 12u);
  const Outcome answer = run("generate " + out + "/model -p 'What is 10 + 10?' -n 4 --greedy");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(run("chat " + out + "/model -n 4", "What is 1 + 1?\n/clear\nAnd 2 + 2?\n/exit\n").code, 0);
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
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), 3) << read_file(folder() + "/parts.log");
    ++stops;
  }
  EXPECT_GE(stops, 1);
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(read_file(parts + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
}

TEST_F(Cli, AKilledRunContinuesFromItsCheckpoint) {
  const std::string whole = folder() + "/whole2", killed = folder() + "/killed";
  ASSERT_EQ(run("train " + yaml() + " --output " + whole).code, 0);
  const pid_t child = fork();
  if (child == 0) {
    ::freopen("/dev/null", "a", stderr);
    ::execl(TEMPER_BINARY, "temper", "train", yaml().c_str(), "--output", killed.c_str(),
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  for (int i = 0; i < 6000 && !(exists(killed + "/metrics.jsonl") && losses(killed).size() >= 7); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(run("train " + yaml() + " --output " + killed).code, 0);
  EXPECT_EQ(losses(killed), losses(whole));
  EXPECT_EQ(read_file(killed + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
}

TEST_F(Cli, DryRunTrainsNothing) {
  const std::string out = folder() + "/dry";
  const Outcome outcome = run("train " + yaml() + " --output " + out + " --dry-run");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("Nothing was trained"), std::string::npos);
  EXPECT_FALSE(exists(out));
}

TEST_F(Cli, InspectShowsTargets) {
  const Outcome outcome = run("data inspect " + yaml() + " --rows 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("<|im_end|>|]]"), std::string::npos) << outcome.out;
}

TEST_F(Cli, BadInputIsRefusedWithTheWayOut) {
  expect_refused("train " + yaml() + " --train.optimizer.lerning_rate 1", 2, "train.optimizer.");
  expect_refused("train " + folder() + "/none.yaml", 2, "none.yaml");
  expect_refused("train " + yaml() + " --model.path " + folder() + "/nowhere --output " + folder() + "/x", 2,
                 "nowhere");
  expect_refused("train " + yaml() + " --data.train [" + folder() + "/none.jsonl]", 2, "none.jsonl");
  expect_refused("train " + yaml() + " --memory_limit_mib 1 --output " + folder() + "/x", 4, "[memory]");
  expect_refused(
      "train " + yaml() + " --model.ops_implementation.attn_implementation magic --output " + folder() + "/x",
      2, "is not a registered backend");
  expect_refused("generate " + folder() + "/model", 2, "--prompt");
  expect_refused("generate " + folder() + "/model -p x --top-p 7", 2, "--top-p");
  write_file(folder() + "/bad.jsonl",
             read_file(folder() + "/eval.jsonl").substr(0, 200) + "\n{\"question\": 1}\n");
  expect_refused("train " + yaml() + " --data.train [" + folder() + "/bad.jsonl] --output " + folder() + "/x",
                 2, "bad.jsonl:");
}

TEST_F(Cli, ATruncatedModelIsRefused) {
  const std::string broken = folder() + "/broken";
  make_directories(broken);
  for (const std::string& name : list_directory(folder() + "/model")) {
    const std::string text = read_file(folder() + "/model/" + name);
    write_file(broken + "/" + name, name == "model.safetensors" ? text.substr(0, text.size() - 100) : text);
  }
  expect_refused("generate " + broken + " -p x", 2, "model.safetensors");
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
