#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <set>
#include <sstream>
#include <thread>

#include "checkpoints/hf_folder.h"
#include "exchange/sender.h"
#include "layers/decoder.h"
#include "models/model.h"
#include "tests/cli/ranks_fixture.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

namespace temper {

inline void wait_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// A program that runs in the background of the test.
class BackgroundProgram {
 public:
  BackgroundProgram(const std::string& arguments, const std::string& log) : log_(log), child_(::fork()) {
    if (child_ != 0) return;
    const std::string command =
        std::string("exec ") + TEMPER_BINARY + " " + arguments + " >/dev/null 2>" + log;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ~BackgroundProgram() {
    if (!ended_) end(SIGKILL);
  }
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;
  void signal(int number) const { ::kill(child_, number); }
  bool runs() {
    if (!ended_ && ::waitpid(child_, &status_, WNOHANG) == child_) ended_ = true;
    return !ended_;
  }
  int end(int number) {
    if (runs()) {
      signal(number);
      ::waitpid(child_, &status_, 0);
      ended_ = true;
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  std::string log() const { return read_file(log_); }

 private:
  std::string log_;
  pid_t child_;
  int status_ = 0;
  bool ended_ = false;
};

class TrainerSends : public RanksOfARun {
 protected:
  void SetUp() override {
    std::string rows;
    for (int i = 0; i < 50; ++i) rows += R"({"prompt": ")" + std::to_string(i) + R"( + 1 = "})" + "\n";
    write_file(folder() + "/questions.jsonl", rows);
    remove_all(folder() + "/answers.jsonl");
  }
  static std::string socket() { return folder() + "/weights.sock"; }
  static std::string answering(const std::string& out, const std::string& more = "",
                               const std::string& model = "model") {
    return "batch " + folder() + "/" + model + " " + folder() + "/questions.jsonl --out " + folder() + "/" +
           out + " --samples 2000 --batch 16 -t 1 -n 6 --seed 5 --threads 1 --batch-invariant " + more;
  }
  // Answers until it is ended, and takes weights by then.
  std::unique_ptr<BackgroundProgram> answer_in_background(const std::string& more = "",
                                                          const std::string& model = "model") {
    remove_all(folder() + "/answers.jsonl");
    auto answers = std::make_unique<BackgroundProgram>(
        answering("answers.jsonl", "--weights-from " + socket() + " " + more, model),
        folder() + "/answers.log");
    while (!exists(socket()) && answers->runs()) wait_a_moment();
    EXPECT_TRUE(answers->runs()) << answers->log();
    return answers;
  }
  static std::string sending(const std::string& out, const std::string& more = "") {
    return "train " + yaml() + " --train.threads 1 --output " + folder() + "/" + out + " --exchange.to " +
           socket() + " " + more;
  }

  // "row sample ids log_probs" of the first answers that weights of one version alone sampled.
  static std::multimap<int64_t, std::string> answers_in(const std::string& path, const char* key) {
    std::multimap<int64_t, std::string> answers;
    if (!exists(path)) return answers;
    std::istringstream stream(read_file(path));
    for (std::string line; std::getline(stream, line) && line.ends_with("}");) {
      const Json row = Json::parse(line, "answer");
      int64_t version = 0;
      if (const Json* versions = row.find(key)) {
        version = versions->as_array().front().as_int();
        for (const Json& each : versions->as_array())
          if (each != versions->as_array().front()) version = -1;
      }
      answers.emplace(version, row.at("row").dump() + " " + row.at("sample").dump() + " " +
                                   row.at("ids").dump() + " " + row.at("log_probs").dump());
    }
    return answers;
  }

  // Ends the other process after some answers of the version, which are those of a program with this model.
  static void expect_answers(BackgroundProgram& answers, int64_t version, const char* key,
                             const std::string& trained) {
    const auto some = [&] { return answers_in(folder() + "/answers.jsonl", key).count(version) >= 40; };
    while (!some() && answers.runs()) wait_a_moment();
    EXPECT_EQ(answers.end(SIGTERM), 3) << answers.log();
    const auto found = answers_in(folder() + "/answers.jsonl", key);
    EXPECT_GE(found.count(version), 40u);
    BackgroundProgram other(trained, folder() + "/trained.log");
    std::set<std::string> expected;
    const auto missing = [&] {
      expected.clear();
      for (const auto& [none, answer] : answers_in(folder() + "/trained.jsonl", "none"))
        expected.insert(answer);
      for (auto [each, end] = found.equal_range(version); each != end; ++each)
        if (!expected.contains(each->second)) return true;
      return false;
    };
    while (missing() && other.runs()) wait_a_moment();
    EXPECT_FALSE(missing()) << expected.size() << other.log();
    other.end(SIGTERM);
    remove_all(folder() + "/trained.jsonl");
  }
};

}  // namespace temper
