#include "recipes/grpo/answers/journal.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

std::string line(int64_t rollout, int64_t group, const std::string& text) {
  SampledAnswer sample{rollout, group, 0, 5};
  sample.passages.push_back(
      {.prompt = {1}, .ids = {2}, .sampled = {1}, .columns = {.rollout_log_probs = {-1}}, .versions = {0}});
  sample.finish = "stop";
  sample.text = text;
  return to_json(sample, Prompt{5, {1}, {}, {}, "file:6", "question"}, {}, "key").dump() + "\n";
}

// Files grow larger than memory: what other rollouts have is not parsed.
TEST(Journal, ReadsTheRolloutThatContinuesAlone) {
  const TemporaryDirectory folder;
  const std::string file = folder / "rollouts.jsonl", before = "{\"rollout\": 0, and no more of it is read\n";
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

// Each number is another one, so that no field passes for another.
Passage passage_of(int32_t first, bool with_values) {
  const auto f = static_cast<float>(first);
  Passage passage{.prompt = {first, first + 1},
                  .ids = {first + 2, first + 3},
                  .sampled = {1, 0},
                  .versions = {static_cast<uint64_t>(first) + 4, 0},
                  .experts = {first + 5, -1}};
  float number = f;
  for (const auto& [column, unknown] : data::TokenColumns::kAll) {
    const bool is_made_again =  // of the batch that learns them
        column == &data::TokenColumns::advantages || column == &data::TokenColumns::returns;
    if (is_made_again || (column == &data::TokenColumns::values && !with_values)) continue;
    passage.columns.*column = {-number - 0.1f, -number - 0.2f};
    number += 0.2f;
  }
  if (with_values) passage.value_behind = f + 0.9f;
  return passage;
}

// A field that answers get later does not compile here until it is compared, too, or known to be made again.
void expect_same(const Passage& found, const Passage& expected) {
  const auto& [prompt, ids, sampled, columns, versions, experts, value_behind] = found;
  EXPECT_EQ(prompt, expected.prompt);
  EXPECT_EQ(ids, expected.ids);
  EXPECT_EQ(sampled, expected.sampled);
  for (const auto& [column, unknown] : data::TokenColumns::kAll)
    EXPECT_EQ(columns.*column, expected.columns.*column);
  EXPECT_EQ(versions, expected.versions);
  EXPECT_EQ(experts, expected.experts);
  EXPECT_EQ(value_behind, expected.value_behind);
}

void expect_same(const SampledAnswer& found, const SampledAnswer& expected) {
  const auto& [rollout, group, number, row, passages, finish, text, turns, reward, parts, error, advantage,
               scored] = found;
  EXPECT_EQ(rollout, expected.rollout);
  EXPECT_EQ(group, expected.group);
  EXPECT_EQ(number, expected.number);
  EXPECT_EQ(row, expected.row);
  ASSERT_EQ(passages.size(), expected.passages.size());
  for (size_t i = 0; i < passages.size(); ++i) expect_same(passages[i], expected.passages[i]);
  EXPECT_EQ(finish, expected.finish);
  EXPECT_EQ(text, expected.text);
  EXPECT_EQ(turns, expected.turns);
  EXPECT_EQ(reward, expected.reward);
  EXPECT_EQ(parts, expected.parts);
  EXPECT_EQ(error, expected.error);
  EXPECT_EQ(advantage, 0) << "of the batch that learns it";
  EXPECT_TRUE(scored);
}

// To the file, and to the other ranks that learn from them.
TEST(SampledAnswers, KeepEveryField) {
  const SampledAnswer sample{.rollout = 1,
                             .group = 2,
                             .number = 3,
                             .row = 4,
                             .passages = {passage_of(10, true), passage_of(200, false)},
                             .finish = "length",
                             .text = "text",
                             .turns = 5,
                             .reward = 6.5,
                             .parts = {7.5, 8.5},
                             .error = "a reward failed"};
  const Json written = to_json(sample, Prompt{4, {1}, {}, {}, "file:6", "question"}, {"a", "b"}, "key");
  SampledAnswer found = sample_from(Json::parse(written.dump(), "sample"));
  take_scores(Json::parse(scores_to_json(sample).dump(), "scores"), found);
  expect_same(found, sample);
}

}  // namespace
}  // namespace temper::recipes
