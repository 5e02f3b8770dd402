#include "recipes/grpo/journal.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

std::string line(int64_t rollout, int64_t group, const std::string& text) {
  SampledAnswer sample{rollout, group, 0, 5};
  sample.passages.push_back({.prompt = {1}, .ids = {2}, .sampled = {1}, .log_probs = {-1}, .versions = {0}});
  sample.finish = "stop";
  sample.text = text;
  return to_json(sample, Prompt{5, {1}, {}, {}, "file:6", "question"}, {}, "key").dump() + "\n";
}

// Files grow larger than memory: what other rollouts have is not parsed.
TEST(Journal, ReadsTheRolloutThatContinuesAlone) {
  const TemporaryDirectory folder;
  const std::string file = folder / "rollouts.jsonl",
                    before = "{\"rollout\": 0, of which nobody reads more\n";
  const std::string own = line(1, 0, "first") +
                          "{\"sample\": 0, \"scores\": [], \"group\": 7, \"rollout\": 0}\n" +
                          line(1, 3, "{\"rollout\": 2, ");
  write_file(file, before + own + line(2, 0, "later") + "{\"rollout\": 1, \"gro");
  Journal journal(folder.path(), 0, 1);
  journal.begin_at(1, true);
  ASSERT_NE(journal.find(0, 0), nullptr);
  EXPECT_EQ(journal.find(0, 0)->sample.text, "first");
  EXPECT_EQ(journal.find(0, 0)->key, "key");
  ASSERT_NE(journal.find(3, 0), nullptr);
  EXPECT_EQ(journal.find(3, 0)->sample.text, "{\"rollout\": 2, ");
  EXPECT_EQ(journal.find(7, 0), nullptr);
  EXPECT_EQ(read_file(file), before + own);
  journal.begin_at(1, false);
  EXPECT_EQ(journal.find(0, 0), nullptr);
  EXPECT_EQ(read_file(file), before + "{\"sample\": 0, \"scores\": [], \"group\": 7, \"rollout\": 0}\n");
}

}  // namespace
}  // namespace temper::recipes
