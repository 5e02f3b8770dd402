#pragma once
#include "tests/cli/cli_fixture.h"
#include "tests/support/errors.h"

namespace temper {

class GrpoCli : public Cli {
 protected:
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    write_file(folder() + "/prompts.jsonl", prompts(40));
    write_file(folder() + "/held.jsonl", prompts(6));
  }
  static std::string prompts(int count) {
    std::string rows;
    for (int i = 0; i < count; ++i)
      rows +=
          fmt::format(R"({{"prompt": [{{"role": "user", "content": "What is {} + {}?"}}], "answer": "{}"}})"
                      "\n",
                      i, 2 * i, 3 * i);
    return rows;
  }
  // Digits are likely enough among random tokens of a small vocabulary.
  static std::string configuration(const std::string& name, const std::string& grpo,
                                   const std::string& more = "") {
    const std::string path = folder() + "/" + name + ".yaml";
    std::string keys = grpo;
    if (const size_t group = keys.find("sampling: {"); group == std::string::npos)
      keys += "  sampling: {max_new_tokens: 7}\n";
    else if (keys.find("max_new_tokens") == std::string::npos)
      keys.insert(group + 11, "max_new_tokens: 7, ");
    write_file(path,
               "recipe: grpo\nmodel: {path: " + folder() + "/model}\ndata:\n  train: [" + folder() +
                   "/prompts.jsonl]\n  max_length: 48\ngrpo:\n  group_size: 4\n  prompts_per_rollout: 4\n" +
                   (grpo.find("rewards:") == std::string::npos
                        ? "  rewards: [{type: pattern, pattern: '[0-9a-f]'}]\n"
                        : "") +
                   keys +
                   "train: {steps: 6, optimizer: {lr: 1e-3}, schedule: {type: constant}}\n"
                   "checkpoint: {every_steps: 2}\n" +
                   more);
    return path;
  }
  static std::string trained(const std::string& config, const std::string& name,
                             const std::string& flags = "") {
    const std::string out = folder() + "/" + name;
    const Outcome outcome = run("train " + config + " --output " + out + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out;
  }
  static std::vector<Json> rollouts(const std::string& file) {
    std::vector<Json> lines;
    const std::string text = read_file(file);
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines.push_back(Json::parse(std::string_view(text).substr(begin, end - begin), file));
    return lines;
  }
  static double number(const Json& line, const char* name) { return line.at(name).as_double(); }
};

}  // namespace temper
