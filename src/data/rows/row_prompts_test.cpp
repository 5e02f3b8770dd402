#include <gtest/gtest.h>

#include "data/rows/row.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

const std::string kUser = R"({"role": "user", "content": "2 + 2?"})",
                  kFour = R"({"role": "assistant", "content": "4"})",
                  kFive = R"({"role": "assistant", "content": "5"})",
                  kAdds = R"({"role": "assistant", "tool_calls": [{"function": {"name": "add"}}]})";

std::string chat_row(const std::string& messages) { return R"({"messages": [)" + messages + "]}"; }

RowEncoder asking(bool drop_answer = false, ChatRenderer render = chatml()) {
  RowOptions options;
  options.drop_answer = drop_answer;
  return RowEncoder(qwen(), std::move(render), options);
}

const std::string kAskedText = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n";

TEST(Questions, AreRowsWithoutTheirLastAnswer) {
  const auto question = [](const std::string& row) { return asking().question_of(Json::parse(row, "row")); };
  const Question chat = question(chat_row(kUser + ", " + kFour));
  EXPECT_EQ(chat.text, "2 + 2?");
  EXPECT_EQ(chat.answer, "4");
  EXPECT_EQ(qwen().decode(chat.prompt), kAskedText);
  const Question text = question(R"({"prompt": "2 + 2 =", "completion": " 4"})");
  EXPECT_EQ(text.text, "2 + 2 =");
  EXPECT_EQ(text.answer, " 4");
  EXPECT_EQ(qwen().decode(text.prompt), "2 + 2 =");
  // What is asked last is a call, which has no text.
  EXPECT_EQ(question(chat_row(kUser + ", " + kAdds + ", " + kFour)).text, "");
  EXPECT_EQ(message_of([&] { question(R"({"text": "a"})"); }),
            "the row has no completion after a prompt to generate");
  for (const std::string& messages : {kFour, kUser + ", " + kUser, kUser + ", " + kAdds})
    EXPECT_EQ(message_of([&] { question(chat_row(messages)); }),
              "the row does not end with an answer of the assistant")
        << messages;
  EXPECT_EQ(message_of([&] {
              asking(false, nullptr).question_of(Json::parse(chat_row(kUser + ", " + kFour), "row"));
            }),
            "the row is a conversation, but the model has no chat template");
}

// The text of a prompt, or the error.
std::string asked_text(const RowEncoder& encoder, const std::string& row) {
  const Json parsed = Json::parse(row, "row");
  std::string text;
  const std::string error = message_of([&] { text = qwen().decode(encoder.prompt_of(parsed)); });
  if (text.empty()) return error;
  EXPECT_EQ(qwen().decode(encoder.asked_of(parsed).ids), text) << row;
  return text;
}

TEST(Prompts, AreWhatStandsBeforeAnAnswer) {
  const std::string answered =
      "the row ends with an answer of the assistant; leave it out to get another one";
  for (const auto& [row, expected] : std::vector<std::pair<std::string, std::string>>{
           {chat_row(kUser), kAskedText},
           {chat_row(kUser + ", " + kFour), answered},
           {R"({"prompt": "2 + 2 =", "completion": " 4"})", "2 + 2 ="},
           {R"({"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"})", "2 + 2 ="},
           {R"({"prompt": [)" + kUser + R"(], "completion": [)" + kFour + "]}", kAskedText},
           {R"({"prompt": [)" + kUser + R"(], "chosen": [)" + kFour + R"(], "rejected": [)" + kFive + "]}",
            kAskedText},
           {R"({"prompt": [)" + kFour + "]}", answered},
           {R"({"prompt": 3})", "prompt must be a string or a list of messages, found an integer"},
           {R"({"text": "2 + 2 ="})", "2 + 2 ="}})
    EXPECT_EQ(asked_text(asking(), row), expected) << row;
}

TEST(Prompts, MayLeaveOutTheAnswerThatIsThere) {
  for (const auto& [row, expected] : std::vector<std::pair<std::string, std::string>>{
           {chat_row(kUser + ", " + kFour + ", " + kFive), kAskedText},
           {chat_row(kUser), kAskedText},
           {chat_row(kFour), "the row is an answer of the assistant without a question"},
           {R"({"prompt": [)" + kUser + ", " + kFive + R"(], "completion": [)" + kFour + "]}", kAskedText},
           {R"({"question": "2 + 2?", "answer": "4"})", kAskedText},
           {R"({"text": "2 + 2 ="})", "2 + 2 ="},
           {R"({"prompt": "2 + 2 =", "completion": " 4"})", "2 + 2 ="},
           // An answer of before is a row of its own, whose input is asked again.
           {R"({"text": "4", "finish": "stop", "ids": [1], "log_probs": [0.0], "input": {"question": "2 + 2?",
               "answer": "5"}})",
            kAskedText}})
    EXPECT_EQ(asked_text(asking(true), row), expected) << row;
  EXPECT_EQ(asked_text(asking(true, nullptr), R"({"question": "2 + 2?", "answer": "4"})"), "2 + 2?\n\n");
}

TEST(Prompts, OfConversationsAreMessages) {
  const auto messages = [](const std::string& row) {
    return asking(true).messages_of(Json::parse(row, "row"));
  };
  const Json user = Json::parse("[" + kUser + "]", "messages");
  EXPECT_EQ(messages(chat_row(kUser + ", " + kFour)), user);
  EXPECT_EQ(messages(R"({"prompt": [)" + kUser + R"(], "completion": [)" + kFour + "]}"), user);
  EXPECT_EQ(messages(R"({"prompt": "2 + 2 =", "completion": " 4"})"), Json());
  const Json row = Json::parse(chat_row(kUser), "row");
  EXPECT_EQ(asking().prompt_text(user.as_array(), row).text, kAskedText);
  EXPECT_EQ(message_of([&] { asking(false, nullptr).prompt_text(user.as_array(), row); }),
            "the row is a conversation, but the model has no chat template");
}

TEST(RowOptions, AreChecked) {
  RowOptions options;
  options.max_length = -1;
  EXPECT_EQ(message_of([&] { RowEncoder(qwen(), chatml(), options); }),
            "[data] max_length is -1, expected at least 0");
}

// The last turn is the last one that may be trained on; if there is none, nothing is trained on.
TEST(RowOptions, OfTheLastTurnTakesTheLastThatIsLearnt) {
  RowOptions options;
  options.loss = LossOn::kLastTurn;
  const RowEncoder encoder(qwen(), chatml(), options);
  const auto encode_messages = [&](const std::string& messages) {
    return encoder.encode(Json::parse(chat_row(messages), "row"));
  };
  const std::string unlearnt = R"({"role": "assistant", "content": "6", "weight": 0})";
  EXPECT_EQ(target_runs(encode_messages(kUser + ", " + kFour + ", " + kUser + ", " + unlearnt + ", " + kUser)
                            .examples.at(0)),
            std::vector<std::string>{"4<|im_end|>"});
  EXPECT_EQ(encode_messages(kUser + ", " + unlearnt).status, RowStatus::kNoTargets);
  EXPECT_EQ(encode_messages(kUser).status, RowStatus::kNoTargets);
}

// Both answers of a pair are cut, each on its own; a chosen one alone is a row as any other.
TEST(RowOptions, PairsAreNotSplit) {
  RowOptions options;
  options.max_length = 8;
  options.overflow = Overflow::kSplit;
  options.goal = Goal::kAny;
  const Json row =
      Json::parse(R"({"prompt": "1 2 ", "chosen": "3 4 5 6 7 8", "rejected": "9 8 7 6 5 4"})", "row");
  const EncodedRow pair = RowEncoder(qwen(), chatml(), options).encode(row);
  ASSERT_EQ(pair.examples.size(), 2u);
  for (const Example& example : pair.examples) EXPECT_EQ(example.size(), 8);
  options.goal = Goal::kPairs;
  EXPECT_EQ(RowEncoder(qwen(), chatml(), options).encode(row).examples.at(0).answers.size(), 2u);
  options.goal = Goal::kLanguageModel;
  options.learn_chosen = true;
  EXPECT_GT(RowEncoder(qwen(), chatml(), options).encode(row).examples.size(), 1u);
}

// Whether the template writes a role is seen by the content, where there is one.
TEST(RowOptions, RolesThatAreNotWrittenAreRefusedForWhatTheySay) {
  const RowEncoder encoder(qwen(), chatml(), {});
  const std::string robot = R"({"role": "robot", "tool_calls": [{"function": {"name": "f"}}]})";
  EXPECT_EQ(encoder.encode(Json::parse(chat_row(kUser + ", " + robot + ", " + kFour), "row")).status,
            RowStatus::kKept);
}

}  // namespace
}  // namespace temper::data
