#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "base/files.h"
#include "base/json.h"
#include "device/cpu_features.h"

namespace temper {

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

  // Of kill_at.c, for LD_PRELOAD.
  static std::string kill_library() {
    const std::string library = folder() + "/kill_at.so";
    if (!exists(library)) {
      EXPECT_EQ(
          std::system(
              ("cc -shared -fPIC -o " + library + " " TEMPER_SOURCE_DIR "/tests/cli/kill_at.c -ldl").c_str()),
          0);
    }
    return library;
  }

  // Whether this processor has kernels that add up alike for any number of rows (docs/rollouts.md).
  static bool has_invariant_kernels() {
    write_file(folder() + "/one_row.jsonl", "{\"prompt\": \"1\"}\n");
    const bool has = run("batch " + folder() + "/model " + folder() + "/one_row.jsonl --out " + folder() +
                         "/one_answer.jsonl --batch-invariant -n 1")
                         .code == 0;
    EXPECT_EQ(has, has_cpu_feature("avx2") && has_cpu_feature("fma"));
    return has;
  }

  static void expect_refused(const std::string& arguments, int code, const std::string& message) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.find("defect"), std::string::npos) << outcome.err;
  }

  static std::vector<Json> metrics(const std::string& run_folder) {
    std::vector<Json> lines;
    const std::string text = read_file(run_folder + "/metrics.jsonl");
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines.push_back(Json::parse(std::string_view(text).substr(begin, end - begin), "metrics"));
    return lines;
  }

  // The losses of a run's metrics file, by step.
  static std::vector<std::string> losses(const std::string& run_folder) {
    std::vector<std::string> values;
    for (const Json& line : metrics(run_folder))
      if (const Json* loss = line.find("loss"))
        values.push_back(line.at("step").dump() + " " + loss->dump() + " " + line.at("grad_norm").dump());
    return values;
  }

  static inline TemporaryDirectory* shared_ = nullptr;
};

}  // namespace temper
