#include "data/chat/spellings.h"

#include <gtest/gtest.h>

#include "data/chat/messages.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

Json respelled(std::string_view text) {
  Json row = Json::parse(text, "row"), before = row;
  const bool needed = needs_respelling(row);
  respell(row);
  EXPECT_TRUE(needed || row == before) << text;
  return row;
}

std::string read(std::string_view messages) {
  return Json(read_messages(Json::parse(messages, "row"), "messages")).dump();
}

TEST(Spellings, QuestionsAndAnswersByOtherNames) {
  for (const auto& [given, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"({"question": "q", "answer": "a"})", R"({"instruction": "q", "output": "a"})"},
           {R"({"query": "q", "response": "a", "original_question": "o"})",
            R"({"instruction": "q", "output": "a", "original_question": "o"})"},
           {R"({"problem": "q", "answer": "4", "solution": "a"})",
            R"({"instruction": "q", "answer": "4", "output": "a"})"},
           {R"({"problem": "q", "answer": "a"})", R"({"instruction": "q", "output": "a"})"},
           {R"({"system_prompt": "s", "question": "q", "response": "a"})",
            R"({"system": "s", "instruction": "q", "output": "a"})"},
           {R"({"instruction": "q", "context": "c", "response": "a", "input": null})",
            R"({"instruction": "q", "input": "c", "output": "a"})"},
           {R"({"instruction": "q", "context": "c", "output": "a"})",
            R"({"instruction": "q", "input": "c", "output": "a"})"},
       })
    EXPECT_EQ(respelled(given), Json::parse(expected, "row")) << given;
}

TEST(Spellings, RowsOfOtherFormatsAndUnclearOnesStay) {
  for (const char* row :
       {R"({"problem": "q", "solution": "a", "messages": []})",
        R"({"text": "t", "question": "q", "answer": "a"})",
        R"({"prompt": "p", "answer": "a", "question": "q"})",
        R"({"question": "q", "query": "q", "answer": "a"})",
        R"({"question": "q", "response": "a", "solution": "a"})", R"({"question": "q"})",
        R"({"answer": "a", "response": "a"})", R"({"prompt": "[1] is a reference", "completion": "[{}]"})",
        R"({"instruction": "q", "input": "i", "output": "a", "context": "c"})"})
    EXPECT_EQ(respelled(row), Json::parse(row, "row"));
}

TEST(Spellings, TurnsInATextAreJson) {
  const std::string turns = R"([{"role": "user", "content": "a"}])", quoted = Json(turns).dump();
  const Json list = Json::parse(turns, "turns");
  for (const char* field : {"messages", "conversations", "prompt", "chosen"})
    EXPECT_EQ(respelled(fmt::format("{{\"{}\": {}}}", field, quoted)), Json(Json::Object{{field, list}}));
  EXPECT_EQ(message_of([] { respelled(R"({"messages": "hello"})"); }),
            "messages is a text, expected a list of messages, or one as JSON text");
  EXPECT_EQ(
      message_of([] { respelled(R"({"messages": "[{'role': 'user', 'content': 'a'}]"})"); }),
      "messages is a text, expected a list of messages, or one as JSON text; this one is as Python prints "
      "it: write it with json.dumps");
}

// As transformers gives messages to templates, which read one name or the other.
TEST(Spellings, ReasoningHasOneMeaning) {
  const std::string both =
      R"([{"thinking": "t", "role": "assistant", "content": "c", "reasoning_content": "t"}])";
  EXPECT_EQ(
      read(R"([{"role": "assistant", "content": "c", "reasoning": "t"}])"),
      R"([{"thinking": "t", "role": "assistant", "content": "c", "reasoning": "t", "reasoning_content": "t"}])");
  EXPECT_EQ(read(R"([{"role": "assistant", "content": "c", "reasoning_content": "t"}])"), both);
  EXPECT_EQ(read(R"([{"role": "assistant", "thinking": "t", "content": "c"}])"),
            R"([{"role": "assistant", "thinking": "t", "content": "c", "reasoning_content": "t"}])");
  EXPECT_EQ(
      read(R"([{"role": "assistant", "content": "c", "reasoning_content": null, "reasoning": "r"}])"),
      R"([{"thinking": "r", "role": "assistant", "content": "c", "reasoning": "r", "reasoning_content": "r"}])");
  EXPECT_EQ(message_of([] { read(R"([{"role": "assistant", "content": "c", "reasoning": ["r"]}])"); }),
            "messages[0].reasoning must be a string, found an array");
}

TEST(Spellings, TrainOfATurnIsItsWeight) {
  EXPECT_EQ(read(R"([{"role": "assistant", "content": "c", "train": false}])"),
            R"([{"role": "assistant", "content": "c", "weight": 0}])");
  EXPECT_EQ(read(R"([{"role": "assistant", "content": "c", "train": true, "weight": 1}])"),
            R"([{"role": "assistant", "content": "c", "weight": 1}])");
  EXPECT_EQ(
      Json(read_sharegpt(Json::parse(R"([{"from": "gpt", "value": "c", "train": false}])", "row"), "turns"))
          .dump(),
      R"([{"role": "assistant", "content": "c", "weight": 0}])");
  EXPECT_EQ(message_of([] { read(R"([{"role": "assistant", "content": "c", "train": 0}])"); }),
            "messages[0].train is 0, expected true or false");
  EXPECT_EQ(message_of([] { read(R"([{"role": "user", "content": "c", "train": false, "weight": 1}])"); }),
            "messages[0] has train: false and weight: 1; expected one of them");
}

TEST(Spellings, TablesOfTextHoldStructuresAsJson) {
  const TemporaryDirectory folder;
  write_file(
      folder / "chats.csv",
      "id,messages,tools\n0,\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"a\"\"}, {\"\"role\"\": "
      "\"\"assistant\"\", \"\"content\"\": \"\"b\"\"}]\",\n");
  write_file(folder / "classes.csv", "text,label\ngood film,1\n");
  RowOptions options;
  options.labels = {"bad", "fine"};
  const auto targets = [&](const char* name) {
    const ReadRow read = mixture_of({folder / name}, options).read(0);
    EXPECT_EQ(read.error, "");
    return target_runs(read.row.examples.at(0));
  };
  EXPECT_EQ(targets("chats.csv"), std::vector<std::string>{"b<|im_end|>"});
  EXPECT_EQ(targets("classes.csv"), std::vector<std::string>{"fine<|im_end|>"});
}

TEST(Spellings, RowsAreReadByThem) {
  const RowEncoder encoder(qwen(), chatml(), {});
  const auto targets = [&](std::string_view row) {
    return target_runs(encoder.encode(Json::parse(row, "row")).examples.at(0));
  };
  EXPECT_EQ(targets(R"({"question": "1 + 1?", "answer": "2"})"), std::vector<std::string>{"2<|im_end|>"});
  const std::string turns = R"([{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "train": false}, {"role": "assistant", "content": "c"}])";
  EXPECT_EQ(targets(Json(Json::Object{{"messages", turns}}).dump()), std::vector<std::string>{"c<|im_end|>"});
  EXPECT_EQ(message_of([&] { targets(R"({"messages": [{"role": "user", "content": "a\u0000b"}]})"); }),
            "messages[0].content has a NUL character (U+0000) at byte 1; a text has none: remove it");
}

}  // namespace
}  // namespace temper::data
