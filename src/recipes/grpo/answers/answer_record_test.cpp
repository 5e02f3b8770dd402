#include "recipes/grpo/answers/answer_record.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

const Prompt kPrompt{5, {1, 2, 3}, {}, {}, "file:6", "question"};

SampledAnswer sampled_text(int64_t rollout, int64_t number, const std::string& text) {
  SampledAnswer sample{rollout, 0, number, 5};
  sample.passages.push_back({.prompt = kPrompt.ids,
                             .ids = {4},
                             .sampled = {1},
                             .columns = {.rollout_log_probs = {-1}},
                             .versions = {0}});
  sample.text = text;
  return sample;
}

// An answer is taken over where all that it depends on is the same.
TEST(AnswerRecord, TakesOverWhatWouldBeTheSameAgain) {
  const TemporaryDirectory folder;
  AnswerRecord before(folder.path(), 0, 1, true, "settings");
  before.open(0, true);
  before.write(sampled_text(2, 0, "there"), kPrompt, {});
  before.end_rollout();
  EXPECT_TRUE(before.is_open());
  Prompt other = kPrompt;
  other.ids.back() = 9;
  std::vector<SampledAnswer> samples;
  const auto taken = [&](const std::string& settings, bool takes_over, int64_t rollout, const Prompt& prompt,
                         int64_t number) {
    AnswerRecord record(folder.path(), 0, 1, true, settings);
    record.open(2, takes_over);
    return record.take(rollout, prompt, 0, number, samples);
  };
  EXPECT_FALSE(taken("others", true, 2, kPrompt, 0));
  EXPECT_FALSE(taken("settings", true, 3, kPrompt, 0));
  EXPECT_FALSE(taken("settings", true, 2, other, 0));
  EXPECT_FALSE(taken("settings", true, 2, kPrompt, 1));
  EXPECT_TRUE(samples.empty());
  EXPECT_TRUE(taken("settings", true, 2, kPrompt, 0));
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].text, "there");
  EXPECT_FALSE(taken("settings", false, 2, kPrompt, 0));  // and its line is gone
  EXPECT_FALSE(taken("settings", true, 2, kPrompt, 0));
}

TEST(AnswerRecord, TakesNothingOverOnceTheRolloutIsOver) {
  const TemporaryDirectory folder;
  AnswerRecord record(folder.path(), 0, 1, true, "settings");
  record.open(0, true);
  record.write(sampled_text(0, 0, "there"), kPrompt, {});
  record.end_rollout();
  record.open(0, true);
  record.end_rollout();
  std::vector<SampledAnswer> samples;
  EXPECT_FALSE(record.take(0, kPrompt, 0, 0, samples));
}

}  // namespace
}  // namespace temper::recipes
