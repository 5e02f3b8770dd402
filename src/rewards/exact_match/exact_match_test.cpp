#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

const RewardConfig kExact{.type = "exact_match"};

TEST(ExactMatch, ComparesTheTrimmedTexts) {
  EXPECT_EQ(reward_of(kExact, R"({"answer": "Paris"})", " Paris\n"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": "\u3000Paris\u00a0"})", "Paris"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": "Paris"})", "paris"), 0);
  EXPECT_EQ(reward_of(kExact, R"({"answer": "Paris"})", "Paris."), 0);
  EXPECT_EQ(reward_of(kExact, R"({"answer": "New York"})", "New  York"), 0);
  EXPECT_EQ(reward_of(kExact, R"({"answer": "caf\u00e9"})", "cafe\u0301"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": ""})", " \n"), 1);
}

TEST(ExactMatch, IgnoresTheCaseOfAllScripts) {
  RewardConfig config = kExact;
  config.text.ignore_case = true;
  EXPECT_EQ(reward_of(config, R"({"answer": "PARIS"})", "paris"), 1);
  EXPECT_EQ(reward_of(config, R"({"answer": "STRASSE"})", "straße"), 1);
  EXPECT_EQ(reward_of(config, R"({"answer": "ЯБЛОКО"})", "яблоко"), 1);
  EXPECT_EQ(reward_of(config, R"({"answer": "PARIS"})", "lyon"), 0);
}

TEST(ExactMatch, FindsTheRightAnswerInTheRow) {
  EXPECT_EQ(reward_of(kExact, R"({"answer": 7})", "7"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": true})", "true"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": ["six", 6]})", "6"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": ["six", 6]})", "seven"), 0);
  EXPECT_EQ(reward_of(kExact, R"({"prompt": "2+2", "completion": " 4"})", "4"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": null, "completion": "4"})", "4"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"completion": [{"role": "assistant", "content": "4"}]})", "4"), 1);
  EXPECT_EQ(reward_of(kExact, R"({"messages": [{"role": "user", "content": "2+2"},
                                               {"role": "assistant", "content": "4"}]})",
                      "4"),
            1);
  EXPECT_EQ(reward_of(kExact, R"({"answer": "5", "completion": "4"})", "4"), 0);
}

TEST(ExactMatch, RowsWithoutARightAnswerAreErrors) {
  EXPECT_EQ(
      error_of_row(kExact, R"({"prompt": "2+2", "id": 1})"),
      "the row has neither a field 'answer' nor a completion, nor a last message of the assistant's; it "
      "has prompt, id");
  EXPECT_EQ(
      error_of_row(kExact, R"({"messages": [{"role": "user", "content": "2+2"}]})"),
      "the row has neither a field 'answer' nor a completion, nor a last message of the assistant's; it "
      "has messages");
  EXPECT_EQ(error_of_row(kExact, R"({"answer": {"a": 1}})"),
            "the row's field 'answer' is an object, expected a text, a number or a list of these");
  EXPECT_EQ(error_of_row(kExact, R"({"answer": []})"),
            "the row's field 'answer' is an empty list, expected a text, a number or a list of these");
  EXPECT_EQ(error_of_row(kExact, R"({"answer": ["a", null]})"),
            "the row's field 'answer' has null in its list, expected texts and numbers");
  RewardConfig config = kExact;
  config.text.answer = "solution";
  EXPECT_EQ(reward_of(config, R"({"solution": "4", "answer": "5"})", "4"), 1);
  EXPECT_EQ(error_of_row(config, R"({"answer": "4"})"), "the row has no field 'solution'; it has answer");
}

TEST(ExactMatch, WithinATag) {
  RewardConfig config = kExact;
  config.text.within = "answer";
  const char* row = R"({"answer": "4"})";
  EXPECT_EQ(reward_of(config, row, "<think>5</think><answer> 4 </answer>"), 1);
  EXPECT_EQ(reward_of(config, row, "<answer>5</answer> no: <answer>4</answer>."), 1);
  EXPECT_EQ(reward_of(config, row, "<answer>4</answer> no: <answer>5</answer>"), 0);
  EXPECT_EQ(reward_of(config, row, "<answer>4</answer> or <answer>5"), 1);
  EXPECT_EQ(reward_of(config, row, "4"), 0);
  EXPECT_EQ(reward_of(config, row, "</answer>4"), 0);
  EXPECT_EQ(reward_of(config, row, "4</answer>"), 0);
  config.text.within = "<answer>";
  EXPECT_EQ(
      config_error(config),
      "[grpo.rewards[0].within] '<answer>' is not a tag; write its name without angle brackets, for example "
      "answer");
}

}  // namespace
}  // namespace temper::rewards
