// What the updates of a rollout of recipe grpo learn from.
#include <cmath>
#include <map>
#include <set>

#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

using GrpoUpdates = GrpoCli;

// Of a rollout that serves several updates, those behind the first are by weights that have moved.
TEST_F(GrpoUpdates, SeveralUpdatesShareARollout) {
  const std::string out =
      trained(configuration("several", "  updates_per_rollout: 2\n  epochs: 2\n  loss: dapo\n"), "several");
  std::vector<double> apart;
  for (const Json& line : metrics(out)) apart.push_back(std::abs(number(line, "ratio") - 1));
  ASSERT_EQ(apart.size(), 6u);
  EXPECT_LT(apart[0], 1e-6);
  EXPECT_GT(apart[1], 1e-6);
  EXPECT_LT(apart[4], 1e-6);
  // The line of an update has the reward of its rollout, also where that was trained on before.
  const std::string console = read_file(out + "/console.log");
  for (const auto& [step, begins] : {std::pair<size_t, size_t>{1, 1}, {6, 5}}) {
    const size_t at = console.find(fmt::format("step {}/6", step));
    ASSERT_NE(at, std::string::npos) << console;
    expect_has(console.substr(at, console.find('\n', at) - at),
               fmt::format("reward {:.4g}", number(metrics(out)[begins - 1], "reward")));
  }
}

// A version is how many updates the weights have had, of which a rollout may serve several.
TEST_F(GrpoUpdates, VersionsCountUpdatesNotRollouts) {
  const std::string keys = "  updates_per_rollout: 2\n  epochs: 2\n  loss: dapo\n";
  const std::pair<const char*, const char*> ways[] = {{"", ""},
                                                      {"adapters: [{name: a, rank: 4}]\n", "/adapters/a"}};
  for (const auto& [more, folder_of] : ways) {
    const std::string name = *more == 0 ? "versions" : "versions_adapter",
                      out = trained(configuration(name, keys, more), name, " --train.steps 9") + folder_of;
    int answers = 0;
    for (const Json& line : rollouts(out + "/rollouts.jsonl")) {
      if (line.find("passages") == nullptr) continue;  // scores
      ++answers;
      for (const Json& version : line.at("passages").as_array().at(0).at("versions").as_array())
        EXPECT_EQ(version.as_int(), 4 * line.at("rollout").as_int()) << name;
    }
    EXPECT_EQ(answers, 3 * 16) << name;
  }
}

// The same prompts are answered otherwise in each rollout, also by weights that hardly change.
TEST_F(GrpoUpdates, EachRolloutHasSeedsOfItsOwn) {
  std::string rows;
  for (int i = 0; i < 8; ++i)
    rows += R"({"prompt": [{"role": "user", "content": "7?"}], "answer": "7"})"
            "\n";
  write_file(folder() + "/one_prompt.jsonl", rows);
  const std::string out =
      trained(configuration("seeds", ""), "seeds",
              " --data.train [" + folder() + "/one_prompt.jsonl] --train.steps 3 --train.optimizer.lr 1e-12");
  std::map<std::pair<int64_t, int64_t>, std::set<std::string>> answers;  // by group and number
  int64_t count = 0;
  for (const Json& line : rollouts(out + "/rollouts.jsonl")) {
    answers[{line.at("group").as_int(), line.at("sample").as_int()}].insert(
        line.at("passages").as_array().at(0).at("ids").dump());
    ++count;
  }
  ASSERT_EQ(count, 3 * 16);
  ASSERT_EQ(answers.size(), 16u);
  for (const auto& [place, texts] : answers)
    EXPECT_GT(texts.size(), 1u) << place.first << " " << place.second;
}

// Few answers end by themselves, and an update may have none.
TEST_F(GrpoUpdates, AnUpdateMayHaveNothingToLearnFrom) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string keys =
      "  updates_per_rollout: 4\n  filter: {on_truncated: drop}\n  sampling: {stop: [a, b, c, d, e, f, '1', "
      "'2']}\n";
  const std::pair<const char*, const char*> ways[] = {{"", ""},
                                                      {"adapters: [{name: a, rank: 4}]\n", "/adapters/a"}};
  for (const auto& [more, folder_of] : ways) {
    const std::string config = configuration("nothing", keys, more), name = *more == 0 ? "all" : "adapter";
    const Outcome outcome =
        run("train " + config + " --train.steps 12 --output " + folder() + "/nothing_" + name);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_has(outcome.err,
               "of its 4 updates have nothing to learn from, since all their answers were cut off");
    const std::vector<Json> one = metrics(folder() + "/nothing_" + name + folder_of);
    int without = 0, with = 0;
    for (const Json& line : one) {
      const bool empty = number(line, "target_tokens") == 0;
      (empty ? without : with) += 1;
      if (empty) {
        EXPECT_EQ(number(line, "grad_norm"), 0);
      }
    }
    EXPECT_GT(without, 0) << name;
    EXPECT_GT(with, 2) << name;
    const std::string ranks = trained(config, "nothing_ranks_" + name, " --train.steps 12 --ranks 2");
    EXPECT_EQ(losses(ranks + folder_of), losses(folder() + "/nothing_" + name + folder_of));
  }
}

TEST_F(GrpoUpdates, RewardsThatNeverDifferAreReportedOnce) {
  constexpr std::string_view kWarning =
      "the answers to a prompt are all worth the same, for each of its 4 prompts";
  const std::string same = "  rewards: [{type: pattern, pattern: '$'}]\n";
  for (const auto& [keys, times] :
       {std::pair{same, 1}, {same + "  loss: reinforce_pp\n", 0}, {std::string(), 0}}) {
    const Outcome outcome = run("train " + configuration("alike", keys) + " --output " + folder() +
                                "/alike_" + std::to_string(keys.size()));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    int found = 0;
    for (size_t at = 0; (at = outcome.err.find(kWarning, at)) != std::string::npos; ++at) ++found;
    EXPECT_EQ(found, times) << keys << outcome.err;
  }
}

}  // namespace
}  // namespace temper
