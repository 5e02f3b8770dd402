#include "data/rows/answered_rows.h"

#include <gtest/gtest.h>

#include "data/sources/test_support.h"

namespace temper::data {
namespace {

std::string line_of(const std::string& input, const std::string& finish = "stop") {
  return R"({"row": 0, "sample": 1, "key": "k", "text": "It is 4.", "finish": ")" + finish +
         R"(", "ids": [1, 2], "log_probs": [-1.0, -2.0], "input": )" + input + "}";
}

EncodedRow encoded(const std::string& row) {
  return RowEncoder(qwen(), chatml(), {}).encode(Json::parse(row, "row"));
}

// Training on the line is the same as on a row that has this answer itself.
void expect_same(const std::string& input, const std::string& row) {
  const EncodedRow found = encoded(line_of(input)), wanted = encoded(row);
  ASSERT_EQ(found.examples.size(), 1u);
  EXPECT_EQ(found.examples[0].ids, wanted.examples.at(0).ids) << input;
  EXPECT_EQ(found.examples[0].loss_mask, wanted.examples[0].loss_mask) << input;
  EXPECT_NE(target_runs(found.examples[0]).at(0).find("It is 4."), std::string::npos) << input;
}

TEST(AnsweredRows, AreTheirRowsWithTheAnswer) {
  const std::string user = R"({"role": "user", "content": "2 + 2?"})",
                    right = R"({"role": "assistant", "content": "It is 4."})",
                    wrong = R"({"role": "assistant", "content": "It is 5."})";
  const std::string chat = R"({"messages": [)" + user + ", " + right + "]}";
  expect_same(R"({"messages": [)" + user + "]}", chat);
  expect_same(R"({"messages": [)" + user + ", " + wrong + "]}", chat);
  expect_same(R"({"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "5"}]})",
              chat);
  expect_same(R"({"prompt": [)" + user + R"(], "answer": 4})",
              R"({"prompt": [)" + user + R"(], "completion": [)" + right + "]}");
  const std::string pair = R"({"prompt": "2 + 2?\n", "completion": "It is 4."})";
  expect_same(R"({"prompt": "2 + 2?\n"})", pair);
  expect_same(R"({"prompt": "2 + 2?\n", "completion": "It is 5."})", pair);
  expect_same(R"({"prompt": "2 + 2?\n", "chosen": "4", "rejected": "5"})", pair);
  expect_same(R"({"text": "2 + 2?\n"})", pair);
  expect_same(R"({"question": "2 + 2?", "answer": "5"})", R"({"question": "2 + 2?", "answer": "It is 4."})");
  expect_same(R"({"instruction": "2 + 2?", "output": "5"})",
              R"({"instruction": "2 + 2?", "output": "It is 4."})");
}

// What `temper batch` leaves out of a row is not trained on, whatever the name of its role.
TEST(AnsweredRows, AnEarlierAnswerOfAnyNameGivesWay) {
  const std::string user = R"({"role": "user", "content": "2 + 2?"})",
                    right = R"({"role": "assistant", "content": "It is 4."})";
  for (const std::string speaker : {"gpt", "assistant", "chatgpt", "chatbot", "model", "bot", "bing", "bard"})
    expect_same(R"({"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": ")" + speaker +
                    R"(", "value": "5"}]})",
                R"({"messages": [)" + user + ", " + right + "]}");
  expect_same(R"({"conversations": [{"from": "human", "value": "2 + 2?"},
                  {"from": "function_call", "value": "{\"name\": \"add\", \"arguments\": {}}"},
                  {"from": "model", "value": "5"}]})",
              R"({"messages": [)" + user + ", " + right + "]}");
  expect_same(R"({"prompt": [)" + user + R"(, {"role": "assistant", "content": "It"}], "completion":
                  [{"role": "assistant", "content": "is 5."}]})",
              R"({"prompt": [)" + user + R"(], "completion": [)" + right + "]}");
}

// A preference is asked as the conversation that it is, wherever its prompt stands.
TEST(AnsweredRows, PreferencesAreLearntAsTheyWereAsked) {
  const std::string user = R"({"role": "user", "content": "2 + 2?"})",
                    right = R"({"role": "assistant", "content": "It is 4."})",
                    four = R"({"role": "assistant", "content": "4"})",
                    five = R"({"role": "assistant", "content": "5"})";
  const std::string chat = R"({"prompt": [)" + user + R"(], "completion": [)" + right + "]}";
  expect_same(R"({"prompt": "2 + 2?", "chosen": [)" + four + R"(], "rejected": [)" + five + "]}", chat);
  expect_same(R"({"prompt": "2 + 2?", "chosen": [)" + user + ", " + four + R"(], "rejected": [)" + user +
                  ", " + five + "]}",
              chat);
  expect_same(R"({"chosen": [)" + user + ", " + four + R"(], "rejected": [)" + user + ", " + five + "]}",
              chat);
  expect_same(R"({"prompt": [)" + user + R"(], "chosen": [)" + four + R"(], "rejected": [)" + five + "]}",
              chat);
  expect_same(
      R"({"system": "s", "prompt": "2 + 2?", "chosen": [)" + four + R"(], "rejected": [)" + five + "]}",
      R"({"system": "s", "prompt": [)" + user + R"(], "completion": [)" + right + "]}");
  expect_same(R"({"chosen": "2 + 2? 4", "rejected": "2 + 2? 5"})",
              R"({"prompt": "2 + 2?", "completion": "It is 4."})");
}

// Of its prompt such a line has the last message alone.
TEST(AnsweredRows, LinesOfRolloutsAreRefused) {
  const std::string begin = R"({"rollout": 0, "group": 1, "sample": 2, )";
  const std::string answer = begin + R"("row": 3, "place": "p", "question": "2 + 2?", "reward": 1.0, "finish":
                             "stop", "turns": 1, "text": "It is 4.", "passages": [{"prompt": [1], "ids": [2]}]})";
  RowOptions asks;
  asks.drop_answer = true;
  for (const std::string& line : {answer, begin + R"("scores": [{"old_log_probs": []}]})"}) {
    const std::string message = message_of([&] { encoded(line); });
    EXPECT_TRUE(
        message.starts_with("the row is a line of rollouts.jsonl, a record of a run with recipe grpo"))
        << message;
    EXPECT_EQ(message_of([&] { RowEncoder(qwen(), chatml(), asks).prompt_of(Json::parse(line, "row")); }),
              message);
  }
  RowOptions options;
  options.format = RowFormat::kText;  // who says so gets the text alone
  const EncodedRow row = RowEncoder(qwen(), chatml(), options).encode(Json::parse(answer, "row"));
  EXPECT_EQ(qwen().decode(row.examples.at(0).ids), "It is 4.");
  EXPECT_EQ(encoded(begin + R"("text": "It is 4."})").status, RowStatus::kKept);
}

TEST(AnsweredRows, CutAnswersAreRefused) {
  EXPECT_EQ(message_of([] { encoded(line_of(R"({"prompt": "a"})", "length")); }),
            "the answer was cut (finish: length), and a model that learns it learns to stop there; leave it "
            "out, or "
            "set data.on_bad_row: skip");
}

// Of an answer without a question only what stands before it is left: nothing.
TEST(AnsweredRows, AnAnswerNeedsAPlace) {
  EXPECT_EQ(message_of([] { encoded(line_of(R"({"input_ids": [1, 2]})")); }),
            "the row is an answer of 'temper batch' to a row of format tokens, which has no place for it");
  EXPECT_EQ(message_of([] { encoded(line_of(R"({"text": "a", "label": "b"})")); }),
            "the row is an answer of 'temper batch' to a row of format classification, which has no place "
            "for it");
  expect_same(R"({"messages": [{"role": "assistant", "content": "Hello."}]})",
              R"({"messages": [{"role": "assistant", "content": "It is 4."}]})");
  EXPECT_EQ(message_of([] { encoded(line_of(R"({"prompt": [{"role": "assistant", "content": "a"}]})")); }),
            "prompt is empty, expected at least one message");
  EXPECT_EQ(message_of([] { encoded(line_of(R"({"messages": [3]})")); }),
            "messages[0] must be an object, found an integer");
}

TEST(AnsweredRows, OtherRowsStayAsTheyAre) {
  for (const char* field : {"input", "ids", "log_probs", "text", "finish"}) {
    Json row = Json::parse(line_of(R"({"prompt": "a"})"), "row");
    EXPECT_TRUE(is_answered(row));
    row.set(field, 3);
    EXPECT_FALSE(is_answered(row)) << field;
  }
  for (const char* row : {R"({"rollout": 0, "text": "a b"})", R"({"rollout": 0, "group": 1, "text": "a b"})",
                          R"({"rollout": "x", "group": 1, "sample": 1, "scores": [], "text": "a b"})"})
    EXPECT_EQ(encoded(row).status, RowStatus::kKept) << row;
  RowOptions options;
  options.format = RowFormat::kText;  // who says so gets the text alone
  const EncodedRow row =
      RowEncoder(qwen(), chatml(), options).encode(Json::parse(line_of(R"({"prompt": "a"})"), "row"));
  EXPECT_EQ(qwen().decode(row.examples.at(0).ids), "It is 4.");
}

}  // namespace
}  // namespace temper::data
