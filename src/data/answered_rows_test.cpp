#include "data/answered_rows.h"

#include <gtest/gtest.h>

#include "data/test_support.h"

namespace temper::data {
namespace {

std::string line_of(const std::string& input, const std::string& finish = "stop") {
  return R"({"row": 0, "sample": 1, "key": "k", "text": "It is 4.", "finish": ")" + finish +
         R"(", "ids": [1, 2], "log_probs": [-1.0, -2.0], "input": )" + input + "}";
}

EncodedRow encoded(const std::string& row) {
  return RowEncoder(qwen(), chatml(), {}).encode(Json::parse(row, "row"));
}

// What is learnt from the line, and from a row that has this answer itself.
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

TEST(AnsweredRows, CutAnswersAreRefused) {
  EXPECT_EQ(message_of([] { encoded(line_of(R"({"prompt": "a"})", "length")); }),
            "the answer was cut (finish: length), and a model that learns it learns to stop there; leave it "
            "out, or "
            "set data.on_bad_row: skip");
}

TEST(AnsweredRows, OtherRowsStayAsTheyAre) {
  EXPECT_FALSE(is_answered(Json::parse(R"({"text": "a", "input": "b", "finish": "stop"})", "row")));
  RowOptions options;
  options.format = RowFormat::kText;  // who says so gets the text alone
  const EncodedRow row =
      RowEncoder(qwen(), chatml(), options).encode(Json::parse(line_of(R"({"prompt": "a"})"), "row"));
  EXPECT_EQ(qwen().decode(row.examples.at(0).ids), "It is 4.");
}

}  // namespace
}  // namespace temper::data
