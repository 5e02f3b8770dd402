#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "base/json/json.h"
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
    ASSERT_NO_FATAL_FAILURE(prepare_once());
    std::filesystem::copy(prepared(), folder, std::filesystem::copy_options::recursive);
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

  // Ranks of which each has words before its program; their exit code and all that they say.
  static Outcome run_each(const std::string& arguments, std::initializer_list<const char*> before) {
    std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --quiet --oversubscribe ";
    for (const char* words : before)
      command += fmt::format("{}-n 1 {} {} {}", words == *before.begin() ? "" : " : ", words, TEMPER_BINARY,
                             arguments);
    const TemporaryDirectory files;
    const int status = std::system((command + " >" + (files / "text") + " 2>&1").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), "", read_file(files / "text")};
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

 private:
  // The example's data and its model, as this program and this script write them: hundreds of tests begin
  // with a copy.
  static std::string prepared() {
    const std::filesystem::path program = TEMPER_BINARY;
    const auto written = [](const std::filesystem::path& path) {
      return std::filesystem::last_write_time(path).time_since_epoch().count();
    };
    return fmt::format("{}/{}{}_{}_{}", program.parent_path().string(), kPrepared, written(program),
                       written(kScript), kTrainRows);
  }
  static void prepare_once() {
    const std::string wanted = prepared();
    if (std::filesystem::exists(wanted)) return;
    // Complete or not there: others may begin at the same time, and the first to end is taken.
    const std::string made = fmt::format("{}.{}", wanted, ::getpid());
    ASSERT_EQ(std::system(fmt::format("python3 {} {}", kScript, made).c_str()), 0);
    for (const std::string& name : list_directory(made))
      if (name.ends_with("_train.jsonl") || name == "train.jsonl") keep_rows(made + "/" + name, kTrainRows);
    ASSERT_EQ(run("init " + made + "/qwen3-tiny " + made + "/model").code, 0);
    std::error_code taken;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(wanted).parent_path())) {
      const std::string name = entry.path().filename().string();
      // Of programs before this one; others may remove them at the same time.
      if (name.starts_with(kPrepared) && name.find('.') == std::string::npos && entry.path() != wanted)
        std::filesystem::remove_all(entry.path(), taken);
    }
    std::filesystem::rename(made, wanted, taken);
    if (taken) std::filesystem::remove_all(made);
    ASSERT_TRUE(std::filesystem::exists(wanted));
  }

  // A run of a few steps needs no thousands of rows, which every command would read.
  static void keep_rows(const std::string& file, int rows) {
    std::string text = read_file(file);
    size_t end = 0;
    for (int row = 0; row < rows; ++row) end = text.find('\n', end) + 1;
    text.resize(end);
    write_file(file, text);
  }

  static constexpr int kTrainRows = 760;
  static constexpr const char* kPrepared = "prepared_for_tests_";
  static constexpr const char* kScript = TEMPER_SOURCE_DIR "/examples/addition/prepare.py";
};

}  // namespace temper
