#include "data/rows/answers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/rows/pack.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using Ids = std::vector<int32_t>;

RowOptions options_for(Goal goal) {
  RowOptions options;
  options.eos_id = 3000;
  options.goal = goal;
  return options;
}

EncodedRow encode_for(std::string_view row, const RowOptions& options) {
  return RowEncoder(qwen(), chatml(), options).encode(Json::parse(row, "row"));
}

std::string refusal_of(std::string_view row, Goal goal = Goal::kPairs) {
  return message_of([&] { encode_for(row, options_for(goal)); });
}

constexpr std::string_view kPair =
    R"({"prompt": [{"role": "user", "content": "Capital of France?"}],
        "chosen": [{"role": "assistant", "content": "It is Paris."}],
        "rejected": [{"role": "assistant", "content": "It is Rome, I think."}]})";

// An answer with its prompt, as it would stand alone.
std::vector<int32_t> alone(const Example& joined, size_t answer) {
  int64_t shared = joined.size(), begin = 0;
  for (const Answer& each : joined.answers) shared -= each.length;
  begin = shared;
  for (size_t i = 0; i < answer; ++i) begin += joined.answers[i].length;
  std::vector<int32_t> ids(joined.ids.begin(), joined.ids.begin() + shared);
  ids.insert(ids.end(), joined.ids.begin() + begin,
             joined.ids.begin() + begin + joined.answers[answer].length);
  return ids;
}

TEST(Answers, ThePromptIsThereOnce) {
  RowOptions options = options_for(Goal::kAny);
  const EncodedRow apart = encode_for(kPair, options);
  options.goal = Goal::kPairs;
  const EncodedRow joined = encode_for(kPair, options);
  ASSERT_EQ(joined.examples.size(), 1u);
  const Example& example = joined.examples[0];
  ASSERT_EQ(example.answers.size(), 2u);
  EXPECT_TRUE(example.answers[0].good);
  EXPECT_FALSE(example.answers[1].good);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(alone(example, i), apart.examples[i].ids);
  EXPECT_EQ(target_runs(example),
            (std::vector<std::string>{"It is Paris.<|im_end|>", "It is Rome, I think.<|im_end|>"}));
  EXPECT_EQ(joined.tokens_cut, 0);
  // All of the prompt but its last token, where each answer's first one is predicted.
  const int64_t shared = example.size() - example.answers[0].length - example.answers[1].length;
  EXPECT_EQ(apart.examples[0].loss_mask[static_cast<size_t>(shared)], 0);
  EXPECT_EQ(apart.examples[0].loss_mask[static_cast<size_t>(shared) + 1], 1);
  EXPECT_EQ(example.size(), apart.num_tokens() - shared);
}

TEST(Answers, OrTwiceWhereItIsNotShared) {
  RowOptions options = options_for(Goal::kPairs);
  options.share_prompts = false;
  const Example example = encode_for(kPair, options).examples.at(0);
  EXPECT_EQ(example.answers[0].length + example.answers[1].length, example.size());
  options.share_prompts = true;
  const Example shared = encode_for(kPair, options).examples.at(0);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(alone(example, i), alone(shared, i));
  EXPECT_EQ(target_runs(example), target_runs(shared));
}

TEST(Answers, APackedRowKnowsThem) {
  const Example pair = encode_for(kPair, options_for(Goal::kPairs)).examples.at(0);
  const PackedRow row = pack(std::vector<Document>{{7, 0, 0, pair}});
  ASSERT_EQ(row.answers.size(), 1u);
  EXPECT_EQ(row.answers[0].size(), 2u);
  EXPECT_EQ(row.num_targets(), pair.num_targets());
  // The last token of an answer predicts nothing, least of all the other answer's first.
  EXPECT_EQ(row.targets[static_cast<size_t>(pair.size() - pair.answers[1].length - 1)], kIgnore);
}

TEST(Answers, AloneTheyAreJudgedByTheirLabel) {
  const auto judged = [](std::string_view label) {
    return encode_for(fmt::format(R"({{"prompt": "1 + 1 =\n", "completion": "two", "label": {}}})", label),
                      options_for(Goal::kJudgments))
        .examples.at(0);
  };
  for (const auto& [label, good] : {std::pair{"true", true},
                                    {"false", false},
                                    {"1", true},
                                    {"0", false},
                                    {R"("True")", true},
                                    {R"("true")", true},
                                    {R"("1")", true},
                                    {R"("False")", false},
                                    {R"("false")", false},
                                    {R"("0")", false}}) {
    const Example example = judged(label);
    ASSERT_EQ(example.answers.size(), 1u);
    EXPECT_EQ(example.answers[0].length, example.size());
    EXPECT_EQ(example.answers[0].good, good) << label;
    EXPECT_EQ(target_runs(example), std::vector<std::string>{"two<|endoftext|>"});
  }
  EXPECT_EQ(encode_for(kPair, options_for(Goal::kJudgments)).examples.at(0).answers.size(), 2u);
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "completion": "b"})", Goal::kJudgments),
            "completion has no label (fields: prompt, completion); expected true for a good answer, "
            "false for a bad one");
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "completion": "b", "label": "yes"})", Goal::kJudgments),
            R"(label is "yes", expected true or false (or 1 or 0))");
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "completion": "b", "label": 2})", Goal::kJudgments),
            "label is 2, expected true or false (or 1 or 0)");
  EXPECT_EQ(
      refusal_of(R"({"text": "a"})", Goal::kJudgments),
      "the row is of format text; expected prompt, completion and label, or prompt, chosen and rejected");
}

TEST(Answers, RowsThatCompareNothingAreRefused) {
  EXPECT_TRUE(refusal_of(R"({"prompt": "a", "chosen": "b"})")
                  .starts_with("rejected is missing although chosen is present"));
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "chosen": "b", "rejected": "b"})"),
            "chosen and rejected are the same; expected two answers that differ");
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "chosen": "b", "rejected": ""})"),
            "rejected is empty, expected an answer");
  EXPECT_EQ(refusal_of(R"({"prompt": [{"role": "user", "content": "a"}],
                         "chosen": [{"role": "assistant", "content": ""}],
                         "rejected": [{"role": "assistant", "content": "b"}]})"),
            "chosen is empty, expected an answer");
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "completion": "", "label": true})", Goal::kJudgments),
            "completion is empty, expected an answer");
  EXPECT_EQ(
      refusal_of(R"({"text": "a"})"),
      "the row is of format text, this loss compares two answers; expected prompt, chosen and rejected");
}

TEST(Answers, WhatIsCutOffMustNotBeAllOfTheDifference) {
  RowOptions options = options_for(Goal::kPairs);
  const std::string row = R"({"prompt": "1 2 3 4", "chosen": " 5 6 7 8 9", "rejected": " 5 6 7 8 10"})";
  const Example full = encode_for(row, options).examples.at(0);
  options.max_length = full.size() - full.answers[1].length + 1;  // up to the prompt's last token or so
  EXPECT_EQ(encode_for(row, options).status, RowStatus::kKept);
  // They differ behind as many tokens as both have in common.
  RowOptions apart = options_for(Goal::kAny);
  const EncodedRow both = encode_for(row, apart);
  const Ids &chosen = both.examples.at(0).ids, &rejected = both.examples.at(1).ids;
  const int64_t same =
      std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end()).first - chosen.begin();
  ASSERT_GT(same, 8);
  for (int64_t length = 1; length <= same + 1; ++length) {
    options.max_length = length;
    EXPECT_EQ(encode_for(row, options).status, length > same ? RowStatus::kKept : RowStatus::kNoTargets);
  }
}

TEST(Answers, HaveTokensOfTheirOwn) {
  EXPECT_EQ(refusal_of("{\"prompt\": \"caf\", \"chosen\": \"e\xCC\x81\", \"rejected\": \"\xC3\xA9\"}"),
            "chosen and rejected are the same 5 tokens; expected two answers that differ");
  EXPECT_EQ(refusal_of(R"({"prompt": [{"role": "user", "content": "a"}],
                         "chosen": [{"role": "assistant", "content": "b"}],
                         "rejected": [{"role": "assistant", "content": "c", "weight": 0}]})"),
            "rejected has no token to learn; expected an answer after the prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": [{"role": "user", "content": "a"}], "label": 1,
                         "completion": [{"role": "assistant", "content": "c", "weight": 0}]})",
                       Goal::kJudgments),
            "completion has no token to learn; expected an answer after the prompt");
  // A call is an answer.
  EXPECT_EQ(encode_for(R"({"prompt": [{"role": "user", "content": "a"}],
                         "chosen": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}],
                         "rejected": [{"role": "assistant", "content": "c"}]})",
                       options_for(Goal::kPairs))
                .status,
            RowStatus::kKept);
}

}  // namespace
}  // namespace temper::data
