#include <map>

#include "tests/cli/grpo_fixture.h"

// Runs whose folders an older version wrote.
namespace temper {
namespace {

class GrpoOlderRuns : public GrpoCli {
 protected:
  // config.yaml as it was when all keys of grpo but the critic's were in one group.
  static std::string flat(const std::string& yaml) {
    const std::map<std::string, std::map<std::string, std::string>> groups = {
        {"sampling", {}},
        {"filter", {}},
        {"policy", {}},
        {"kl", {{"estimator", "kl"}, {"in", "kl_in"}, {"unbiased", "unbiased_kl"}}},
        {"correction", {{"type", "correction"}, {"cap", "correction_cap"}, {"low", "correction_low"}}},
        {"engine", {{"parallel", "rollout_parallel"}}}};
    std::string written, group;
    bool in_grpo = false;
    for (size_t begin = 0, end; (end = yaml.find('\n', begin)) != std::string::npos; begin = end + 1) {
      std::string line = yaml.substr(begin, end - begin);
      const size_t indent = line.find_first_not_of(' '), colon = line.find(':');
      const std::string name = line.substr(indent, colon - indent);
      if (indent == 0) in_grpo = name == "grpo";
      if (indent < 4) group = in_grpo && indent == 2 && groups.contains(name) ? name : "";
      if (!group.empty() && indent == 2) continue;
      if (!group.empty()) {
        const auto& names = groups.at(group);
        if (indent == 4 && names.contains(name)) line.replace(indent, name.size(), names.at(name));
        line.erase(0, 2);
      }
      written += line + "\n";
    }
    return written;
  }
};

// In the middle of a rollout: its answers are those of the journal, whose weights are gone.
TEST_F(GrpoOlderRuns, Resume) {
  const std::string config =
      configuration("older",
                    "  updates_per_rollout: 4\n  sampling: {top_p: 0.9}\n  kl: {estimator: k2}\n"
                    "  correction: {type: token, cap: 3}\n  engine: {batch: 3}\n");
  const std::string whole = trained(config, "older_whole"),
                    stopped = trained(config, "older_stopped", " --train.steps 2");
  const std::string before = flat(read_file(stopped + "/config.yaml"));
  for (const char* const line :
       {"\n  top_p: 0.9  # written\n", "\n  kl: k2  # written\n", "\n  kl_in: null\n",
        "\n  correction: token  # written\n", "\n  rollout_parallel:\n    tensor: null\n"})
    expect_has(before, line);
  EXPECT_EQ(before.find("\n  sampling:"), std::string::npos) << before;
  write_file(stopped + "/config.yaml", before);
  const size_t answers = rollouts(stopped + "/rollouts.jsonl").size();
  expect_refused("train " + config + " --output " + stopped + " --grpo.sampling.top_p 0.8", 2,
                 "grpo.sampling.top_p: 0.9, now 0.8");
  trained(config, "older_stopped");
  EXPECT_EQ(losses(stopped), losses(whole));
  EXPECT_EQ(read_file(stopped + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
  EXPECT_EQ(rollouts(stopped + "/rollouts.jsonl").size(), rollouts(whole + "/rollouts.jsonl").size());
  EXPECT_LT(answers, rollouts(whole + "/rollouts.jsonl").size());
  expect_has(read_file(stopped + "/config.yaml"), "  sampling:\n");
}

TEST_F(GrpoOlderRuns, FlagsHaveTheirNamesNow) {
  const std::string command =
      "train " + configuration("older_flags", "") + " --output " + folder() + "/flags";
  expect_refused(
      command + " --grpo.temperature 0.7", 2,
      "[command line] unknown key 'grpo.temperature'; its name is 'grpo.sampling.temperature' now");
  expect_refused(command + " --grpo.kl k3", 2,
                 "[command line] 'grpo.kl' is a group of keys now; its former value is 'grpo.kl.estimator'");
}

}  // namespace
}  // namespace temper
