#include "recipes/grpo/sample_rows.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

// What an environment said is no target: it has no score.
TEST(SampleRows, ScoresComeToTheTokensThatTheyAreOf) {
  SampledAnswer one{0, 0, 0, 5}, two{0, 1, 0, 6};
  one.passages.push_back({.prompt = {1, 2},
                          .ids = {3, 4, 5},
                          .sampled = {1, 0, 1},
                          .columns = {.rollout_log_probs = {-1, 0, -2}},
                          .versions = {0, 0, 0}});
  two.passages.push_back(
      {.prompt = {1}, .ids = {6}, .sampled = {1}, .columns = {.rollout_log_probs = {-3}}, .versions = {0}});
  SampleRows rows = rows_of({&one, &two}, 16, data::Packing::kNone, true);
  ASSERT_EQ(rows.targets.size(), 3u);
  std::vector<float> scores;  // 10 times the token
  for (const auto& [sample, passage, token] : rows.targets)
    scores.push_back(10.0f * static_cast<float>(sample->passages[passage].ids[token]));
  rows.take(scores, &data::TokenColumns::old_log_probs);
  EXPECT_EQ(one.passages[0].columns.old_log_probs, (std::vector<float>{30, 0, 50}));
  EXPECT_EQ(two.passages[0].columns.old_log_probs, (std::vector<float>{60}));
  EXPECT_TRUE(one.passages[0].columns.reference_log_probs.empty());
}

}  // namespace
}  // namespace temper::recipes
