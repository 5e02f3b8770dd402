#include "rewards/protocol.h"

#include <gtest/gtest.h>

namespace temper::rewards {
namespace {

TEST(RewardProtocol, Requests) {
  const Json row = Json::parse(R"({"prompt": "2+2", "answer": 4})", "row");
  EXPECT_EQ(request_of(7, {.place = "", .row = &row, .text = "4\n\xFF", .tokens = 2, .truncated = true}),
            R"({"id": 7, "row": {"prompt": "2+2", "answer": 4}, "text": "4\n)"
            "\uFFFD"
            R"(", "messages": null, "tokens": 2, "truncated": true})");
  const Json messages = Json::parse(R"([{"role": "user", "content": "2+2"}])", "messages");
  EXPECT_EQ(request_of(0, {.place = "", .row = &row, .text = "", .messages = messages}),
            R"({"id": 0, "row": {"prompt": "2+2", "answer": 4}, "text": "", )"
            R"("messages": [{"role": "user", "content": "2+2"}], "tokens": 0, "truncated": false})");
}

TEST(RewardProtocol, Answers) {
  const ProtocolAnswer reward = answer_of(R"({"id": 7, "reward": 0.5, "seconds": 3})");
  EXPECT_EQ(reward.problem, "");
  EXPECT_EQ(reward.id, 7);
  EXPECT_EQ(reward.verdict.reward, 0.5);
  EXPECT_EQ(answer_of(R"({"id": 7, "reward": -2})").verdict.reward, -2);
  const ProtocolAnswer error = answer_of(R"({"id": 7, "error": "no compiler", "reward": 1})");
  EXPECT_EQ(error.problem, "");
  EXPECT_EQ(error.verdict.error, "no compiler");
  const ProtocolAnswer next = answer_of(R"({"id": 7, "messages": [{"role": "user", "content": "on"}]})");
  EXPECT_EQ(next.problem, "");
  EXPECT_EQ(next.verdict.next.dump(), R"([{"role": "user", "content": "on"}])");
  EXPECT_EQ(next.verdict.reward, 0);
  EXPECT_EQ(answer_of(R"({"id":7,"reward":1,"messages":[{"role":"tool","content":""}]})").verdict.reward, 1);
  EXPECT_TRUE(answer_of(R"({"id": 7, "reward": 1, "messages": null})").verdict.next.is_null());
}

// As Python writes them: that answer cannot be judged, and the program continues.
TEST(RewardProtocol, RewardsThatAreNotFinite) {
  for (const std::string number : {"NaN", "Infinity", "-Infinity"}) {
    const ProtocolAnswer answer =
        answer_of(R"({"text": "a \\\"NaN\\\" \\", "id": 7, "reward": )" + number + "}");
    EXPECT_EQ(answer.problem, "");
    EXPECT_EQ(answer.id, 7);
    EXPECT_EQ(answer.verdict.error, "the reward is not a finite number");
  }
  const ProtocolAnswer noted = answer_of(R"({"id": 7, "reward": 1, "loss": NaN})");
  EXPECT_EQ(noted.problem + noted.verdict.error, "");
  EXPECT_EQ(noted.verdict.reward, 1);
  EXPECT_EQ(answer_of(R"({"id": 7, "error": "NaN, not Infinity"})").verdict.error, "NaN, not Infinity");
}

TEST(RewardProtocol, WhatIsNoAnswer) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"7", "'7' is not a JSON object with an id"},
      {R"({"reward": 1})", R"('{"reward": 1}' is not a JSON object with an id)"},
      {R"({"id": "7", "reward": 1})", R"('{"id": "7", "reward": 1}' is not a JSON object with an id)"},
      {R"({"id": 7})", R"('{"id": 7}' is not an answer: it has neither a reward nor an error nor messages)"},
      {R"({"id": 7, "reward": "1"})",
       R"('{"id": 7, "reward": "1"}' is not an answer: reward is a string, expected a finite number)"},
      {R"({"id": 7, "reward": true})",
       R"('{"id": 7, "reward": true}' is not an answer: reward is a boolean, expected a finite number)"},
      {R"({"id": 7, "error": ""})",
       R"('{"id": 7, "error": ""}' is not an answer: error must be a non-empty string)"},
      {R"({"id": 7, "messages": []})",
       R"('{"id": 7, "messages": []}' is not an answer: messages is an empty list, expected a list of messages)"},
      {R"({"id": 7, "messages": ["on"]})",
       R"('{"id": 7, "messages": ["on"]}' is not an answer: messages has one without a role)"},
      {R"({"id": 7, "messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]})",
       R"('{"id": 7, "messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]}' is )"
       "not an answer: messages ends with one of the assistant, who is asked for the next"},
      {R"({"id": 7, "messages": [{"role": "user"}]})",
       R"('{"id": 7, "messages": [{"role": "user"}]}' is not an answer: messages has one without a content that is )"
       "text"}};
  for (const auto& [text, problem] : cases) EXPECT_EQ(answer_of(text).problem, problem) << text;
  for (const std::string text :
       {R"({"id": NaN, "reward": 1})", R"({"id": 7, NaN: 1})", R"({"id": 7, "reward": 1e999})",
        R"({"id": 7, "reward": 1} {})", R"({"id": 7, "reward": 1)", "hello", "\xFF", ""})
    EXPECT_NE(answer_of(text).problem, "") << text;
  EXPECT_LT(answer_of(std::string(100'000, 'x')).problem.size(), 500u);
}

}  // namespace
}  // namespace temper::rewards
