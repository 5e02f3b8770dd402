#include "recipes/grpo/rollout_updates.h"

#include <gtest/gtest.h>

#include "config/load.h"

namespace temper::recipes {
namespace {

// Its only token is 10 times the group and the number.
SampledAnswer answer_with_reward(int64_t group, int64_t number, double reward) {
  SampledAnswer sample{0, group, number, 5};
  const auto token = static_cast<int32_t>(10 * group + number);
  sample.passages.push_back({.prompt = {1, 2},
                             .ids = {token},
                             .sampled = {1},
                             .columns = {.rollout_log_probs = {-1}},
                             .versions = {0}});
  sample.finish = "stop";
  sample.reward = reward;
  return sample;
}

RunConfig four_groups(const std::string& more) {
  RunConfig config;
  config::Schema schema = config::schema_of(config);
  config::load_text(schema,
                    "model: {path: m}\nrecipe: grpo\ndata: {max_length: 8, packing: none}\n"
                    "grpo: {prompts_per_rollout: 2, updates_per_rollout: 2, group_size: 2, " +
                        more + "}\n",
                    "run.yaml");
  return config;
}

std::vector<int32_t> learned(const RolloutUpdates& updates, int64_t update) {
  std::vector<int32_t> tokens;
  for (const data::PackedRow& row : updates.batch(update).rows)
    for (const int32_t token : row.ids)
      if (token > 2) tokens.push_back(token);
  return tokens;
}

// Groups 1 and 3 have answers that differ; the other two are left out.
struct Rollout {
  GroupSelection selection{2, 2, true};
  std::vector<SampledAnswer> samples;

  Rollout() {
    selection.add(0, std::vector<double>{1, 1, 0, 1, 0, 0, 2, 1});
    const std::vector<double> rewards = {1, 1, 0, 1, 0, 0, 2, 1};
    for (int64_t i = 0; i < std::ssize(rewards); ++i)
      samples.push_back(answer_with_reward(i / 2, i % 2, rewards[static_cast<size_t>(i)]));
  }
};

TEST(RolloutUpdates, EachHasTheAnswersOfItsGroups) {
  Rollout rollout;
  const RunConfig config = four_groups("epochs: 2");
  RolloutUpdates updates(config, rollout.selection, rollout.samples);
  EXPECT_EQ(updates.samples().size(), 4u);
  updates.samples()[1].advantage = 0.5;
  updates.fill();
  for (const int64_t epoch : {0, 1}) {
    EXPECT_EQ(learned(updates, 2 * epoch), (std::vector<int32_t>{10, 11}));
    EXPECT_EQ(learned(updates, 2 * epoch + 1), (std::vector<int32_t>{30, 31}));
  }
  const data::Batch first = updates.batch(0);
  ASSERT_EQ(first.target_tokens, 2);
  std::vector<float> advantages;
  for (const data::PackedRow& row : first.rows)
    advantages.insert(advantages.end(), row.sampled.advantages.begin(), row.sampled.advantages.end());
  EXPECT_EQ(advantages, (std::vector<float>{0, 0.5f}));
}

TEST(RolloutUpdates, AnswersThatWereCutOffMayBeLeftOut) {
  Rollout rollout;
  rollout.samples[2].finish = "length";
  rollout.samples[7].reward = std::numeric_limits<double>::quiet_NaN();
  const RunConfig learns = four_groups("filter: {on_truncated: learn}"),
                  drops = four_groups("filter: {on_truncated: drop}");
  EXPECT_EQ(RolloutUpdates(learns, rollout.selection, rollout.samples).num_targets(),
            (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(RolloutUpdates(drops, rollout.selection, rollout.samples).num_targets(),
            (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace temper::recipes
