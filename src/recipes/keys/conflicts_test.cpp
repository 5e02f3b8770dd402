#include <gtest/gtest.h>

#include "base/files.h"
#include "config/load.h"
#include "config/print.h"
#include "recipes/keys/conflicts.h"

namespace temper::recipes {
namespace {

// What a run of this configuration leaves in its folder: every key.
std::string left_by(const std::string& yaml) {
  RunConfig config;
  config::Schema schema = config::schema_of(config);
  config::load_text(schema, "model: {path: m}\n" + yaml, "run.yaml");
  return config::dump(schema);
}

std::vector<std::string> conflicts_with(const std::string& left, const RunConfig& now) {
  const TemporaryDirectory folder;
  const std::string file = folder / "conflicts.yaml";
  write_file(file, left);
  return conflicting_keys(file, now);
}

std::vector<std::string> conflicts(const std::string& old_yaml, const RunConfig& now) {
  return conflicts_with(left_by(old_yaml), now);
}

TEST(Conflicts, NameOldAndNewValue) {
  RunConfig now;
  now.model.path = "m";
  now.train.optimizer.lr = 2e-5;
  now.data.train = {{.path = "moved/b.jsonl", .weight = 2}};
  EXPECT_EQ(conflicts("data: {train: [a.jsonl]}\ntrain: {optimizer: {lr: 1e-5}}\n", now),
            (std::vector<std::string>{"data.train[0].weight: 1.0, now 2.0",
                                      "train.optimizer.lr: 1e-05, now 2e-05"}));
}

TEST(Conflicts, ARecipesOwnKeysAreCompared) {
  RunConfig now;
  now.model.path = "m";
  now.recipe = "preference";
  EXPECT_EQ(conflicts("recipe: preference\npreference: {beta: 0.3}\n", now),
            (std::vector<std::string>{"preference.beta: 0.3, now 0.1"}));
}

TEST(Conflicts, AnotherNumberOfSourcesIsOne) {
  RunConfig now;
  now.model.path = "m";
  now.data.train = {{.path = "a.jsonl"}, {.path = "b.jsonl"}};
  const auto found = conflicts("data: {train: [a.jsonl]}\n", now);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].starts_with(R"(data.train: [{"path": "a.jsonl")")) << found[0];
}

TEST(Conflicts, WhatOnlyWatchesOrExtendsMayChange) {
  RunConfig now;
  now.model.path = "m";
  now.data.train = {{.path = "a.jsonl"}};
  now.train.steps = 900;
  now.train.threads.number = 7;
  now.train.threads.pin = Pinning::kOn;
  now.model.strict_kernels = true;
  now.device = "cuda:1";
  now.checkpoint.every_steps = 3;
  now.eval.every_steps = 4;
  now.data.eval = {{.path = "held_out.jsonl"}};
  now.data.threads = 3;
  now.data.on_bad_row = data::OnBadRow::kSkip;
  now.train.compute.activation_checkpointing = Checkpointing::kFull;
  now.train.compute.micro_batch_tokens = 1024;  // what running out of memory advises
  EXPECT_TRUE(conflicts("data: {train: [a.jsonl]}\ntrain: {steps: 10}\n", now).empty());
}

// Runs that older versions left resume, though keys have other names now.
TEST(Conflicts, KeysHaveNamesOfOlderVersions) {
  std::string left = left_by("recipe: preference\npreference: {loss: kto, desirable_weight: 2}\n");
  for (const auto& [name, former] : {std::pair<std::string, std::string>{"undesirable_weight", "bad_weight"},
                                     {" desirable_weight", " good_weight"}}) {
    const size_t at = left.find(name);
    ASSERT_NE(at, std::string::npos) << left;
    left.replace(at, name.size(), former);
  }
  RunConfig now;
  config::Schema schema = config::schema_of(now);
  config::load_text(
      schema, "model: {path: m}\nrecipe: preference\npreference: {loss: kto, desirable_weight: 3}\n", "now");
  EXPECT_EQ(conflicts_with(left, now),
            (std::vector<std::string>{"preference.desirable_weight: 2.0, now 3.0"}));
}

// When all keys of grpo were in one group.
TEST(Conflicts, KeysOfGrpoWereInOneGroup) {
  std::string left = left_by("recipe: grpo\n");
  const size_t begin = left.find("\ngrpo:\n") + 1, end = left.find("\n  critic:\n", begin) + 1;
  left.replace(begin, end - begin,
               "grpo:\n  loss: ppo\n  temperature: 0.7  # written\n  most_rounds: 3\n  batch: 64\n  kl: k2\n"
               "  kl_in: null\n  correction: token_masked\n  correction_low: 0.25\n  rollout_parallel:\n"
               "    tensor: 2\n    expert: null\n");
  RunConfig now;
  config::Schema schema = config::schema_of(now);
  config::load_text(schema,
                    "model: {path: m}\nrecipe: grpo\ngrpo: {loss: ppo, sampling: {temperature: 0.7}, kl: "
                    "{estimator: k3}, filter: {max_rounds: 4}, correction: {type: token_masked, low: 0.25}, "
                    "engine: {batch: 8}}\n",
                    "now");
  EXPECT_EQ(conflicts_with(left, now), (std::vector<std::string>{"grpo.filter.max_rounds: 3, now 4",
                                                                 "grpo.kl.estimator: \"k2\", now \"k3\""}));
}

// Before the key existed, empty answers were trained on.
TEST(Conflicts, RunsThatAreOlderThanTheKeyLearntEmptyAnswers) {
  std::string left = left_by("data: {train: [a.jsonl]}\n");
  const size_t line = left.find("  on_empty_answer:");
  ASSERT_NE(line, std::string::npos) << left;
  left.erase(line, left.find('\n', line) + 1 - line);
  RunConfig now;
  now.model.path = "m";
  now.data.train = {{.path = "a.jsonl"}};
  EXPECT_EQ(conflicts_with(left, now),
            (std::vector<std::string>{
                R"(data.on_empty_answer: "learn", now "drop" (the run is older than this key))"}));
  now.data.on_empty_answer = data::OnEmptyAnswer::kLearn;
  EXPECT_TRUE(conflicts_with(left, now).empty());
}

}  // namespace
}  // namespace temper::recipes
