#include "recipes/grpo/journal.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

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

TEST(Journal, ErrorsNameTheLine) {
  const TemporaryDirectory folder;
  const std::string file = folder / "rollouts.jsonl";
  const auto refusal = [&](const std::string& second) {
    write_file(file, line(0, 0, "first") + second + "\n");
    Journal journal(folder.path(), 0, 1);
    return error_of([&] { journal.begin_at(1, true); });
  };
  expect_has(refusal(R"({"rollout": "x"})"), file + ":2] expected an integer, found a string");
  expect_has(refusal(R"({"rollout": 1, "group": 0})"), file + ":2] ");
  expect_has(refusal("rubbish"), file + ":2:1:1] not valid JSON");
  expect_has(refusal("rubbish"), "; the line is damaged: remove it, and its answer is sampled again");
}

}  // namespace
}  // namespace temper::recipes
