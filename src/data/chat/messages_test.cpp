#include "data/chat/messages.h"

#include <gtest/gtest.h>

#include "data/chat/fields.h"
#include "data/chat/tool_calls.h"
#include "data/rows/row.h"
#include "data/rows/unused_fields.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using NamedCases = std::vector<std::pair<std::string, std::string>>;

Json json_of(std::string_view text) { return Json::parse(text, "row"); }

// What becomes of a list of messages, or of turns of ShareGPT, or the error.
std::string messages_of(std::string_view list) {
  std::string out;
  const std::string error = message_of([&] { out = Json(read_messages(json_of(list), "messages")).dump(); });
  return out.empty() ? error : out;
}
std::string turns_of(std::string_view list) {
  std::string out;
  const std::string error = message_of([&] { out = Json(read_sharegpt(json_of(list), "turns")).dump(); });
  return out.empty() ? error : out;
}

constexpr std::string_view kExpectedCall = R"(, expected {"function": {"name": …, "arguments": …}})";

TEST(Messages, WhatTheyMustHaveIsNamed) {
  for (const auto& [list, expected] : NamedCases{
           {"3", "messages must be an array, found an integer"},
           {R"([{"role": "", "content": "a"}])", "messages[0].role is empty"},
           {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text is missing"},
           {R"([{"role": "user", "content": [{"text": 3}]}])",
            "messages[0].content[0].text must be a string, found an integer"},
           {R"([{"role": "user", "content": {"text": "a"}}])",
            "messages[0].content must be a string, found an object"},
           {R"([{"role": "assistant", "content": "a", "weight": "1", "train": true}])",
            R"(messages[0].weight is "1", expected 0 or 1)"},
           {R"([{"role": "assistant", "content": "a", "weight": 2, "train": true}])",
            "messages[0].weight is 2, expected 0 or 1"},
           {R"([{"role": "assistant", "content": "a", "tool_calls": 3}])",
            "messages[0].tool_calls must be an array, found an integer"},
           {R"([{"role": "assistant", "tool_calls": []}])",
            "messages[0].content is missing, expected a string (or tool_calls)"}})
    EXPECT_EQ(messages_of(list), expected) << list;
  EXPECT_EQ(messages_of(R"([{"role": "user", "content": [{"text": "a"}, {"type": "text", "text": "b"}]}])"),
            R"([{"role": "user", "content": "ab"}])");
  // Of two names for one text, the same in both is fine.
  EXPECT_EQ(
      messages_of(R"([{"role": "assistant", "content": "c", "reasoning": "t", "thinking": "t"}])"),
      R"([{"role": "assistant", "content": "c", "reasoning": "t", "thinking": "t", "reasoning_content": "t"}])");
}

TEST(Messages, CallsHaveANameAndArguments) {
  for (const char* call : {"3", R"({"function": 3})", R"({"function": {"name": 3}})",
                           R"({"function": {"name": ""}})", R"({"name": null, "arguments": {}})"}) {
    const std::string list = fmt::format(
        R"([{{"role": "assistant", "tool_calls": [{{"function": {{"name": "f"}}}}, {}]}}])", call);
    const std::string found = messages_of(list);
    EXPECT_TRUE(found.starts_with("messages[0].tool_calls[1] is ") && found.ends_with(kExpectedCall))
        << found;
  }
  EXPECT_EQ(
      messages_of(R"([{"role": "assistant", "function_call": {"arguments": "{}"}}])"),
      R"(messages[0].function_call is {"arguments": "{}"}, expected a call, {"name": …, "arguments": …})");
  EXPECT_EQ(messages_of(R"([{"role": "assistant", "function_call": {"name": ""}}])"),
            R"(messages[0] is {"type": "function", "function": {"name": ""}})" + std::string(kExpectedCall));
  // A call is said once, or twice alike.
  const std::string call = R"({"function": {"name": "f", "arguments": " "}})";
  const auto with_calls = [&](const std::string& calls) {
    return messages_of(fmt::format(
        R"([{{"role": "assistant", "content": "", "tool_calls": [{}], "function_call": {{"name": "f"}}}}])",
        calls));
  };
  EXPECT_EQ(
      with_calls(call),
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}], "function_call": {"name": "f"}}])");
  EXPECT_EQ(with_calls(call + ", " + call),
            "messages[0] has tool_calls and another function_call; expected one of them");
}

TEST(Messages, TurnsOfShareGptSayWhoSpeaks) {
  for (const auto& [list, expected] : NamedCases{
           {"{}", "turns must be an array, found an object"},
           {"[3]", "turns[0] must be an object with from and value, found an integer"},
           {R"([{"value": "a"}])", "turns[0] must have from and value (fields: value)"},
           {R"([{"from": "human", "value": null}])",
            "turns[0] must have from and value (fields: from, value (null))"},
           {R"([{"from": "human", "value": 3}])", "turns[0].value must be a string, found an integer"},
           {R"([{"from": "function_call", "value": "[3]"}])",
            R"(turns[0].value must be a call, {"name": …, "arguments": …}, or a list of them)"},
           {R"([{"from": "function_call", "value": "{\"arguments\": {}}"}])",
            R"(turns[0].value must be a call, {"name": …, "arguments": …}, or a list of them)"},
           {R"([{"from": "function_call", "value": "[{\"name\": \"f\"}, {\"name\": \"g\"}]"}])",
            R"([{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f"}}, )"
            R"({"type": "function", "function": {"name": "g"}}]}])"}})
    EXPECT_EQ(turns_of(list), expected) << list;
  for (const char* turn : {"3", R"({"from": 3})", R"({"from": "human"})", R"({"value": "a"})"})
    EXPECT_FALSE(is_sharegpt_answer(json_of(turn))) << turn;
  for (const char* turn : {R"({"from": "gpt"})", R"({"from": "function_call"})"})
    EXPECT_TRUE(is_sharegpt_answer(json_of(turn))) << turn;
}

TEST(Messages, ArgumentsTakeTheFormThatIsAskedFor) {
  const auto form = [](const std::string& call, Arguments arguments) {
    const Json list = json_of(R"([{"role": "assistant", "tool_calls": [)" + call + "]}]");
    return with_arguments(list.as_array(), arguments)[0].at("tool_calls").as_array()[0].dump();
  };
  struct Case {
    std::string given, objects, text, filled;
  };
  const std::string named = R"({"name": "f"})", number = R"({"name": "f", "arguments": "3"})",
                    broken = R"({"name": "f", "arguments": "{"})",
                    list = R"({"name": "f", "arguments": [1]})";
  for (const auto& [given, objects, text, filled] : std::vector<Case>{
           {named, named, named, R"({"name": "f", "arguments": {}})"},
           {number, number, number, number},
           {broken, broken, broken, broken},
           {list, list, list, list},
           {R"("f")", R"("f")", R"("f")", R"("f")"},
           {R"({"function": {"name": "f", "arguments": "{\"a\":null, \"b\": 1}"}})",
            R"({"function": {"name": "f", "arguments": {"a": null, "b": 1}}})",
            R"({"function": {"name": "f", "arguments": "{\"a\":null, \"b\": 1}"}})",
            R"({"function": {"name": "f", "arguments": {"b": 1}}})"},
           {R"({"name": "f", "arguments": {"a": 1}})", R"({"name": "f", "arguments": {"a": 1}})",
            R"({"name": "f", "arguments": "{\"a\": 1}"})", R"({"name": "f", "arguments": {"a": 1}})"}}) {
    EXPECT_EQ(form(given, Arguments::kAsGiven), given);
    EXPECT_EQ(form(given, Arguments::kObjects), objects);
    EXPECT_EQ(form(given, Arguments::kText), text);
    EXPECT_EQ(form(given, Arguments::kFilled), filled);
  }
  // Messages that have no list of calls stay as they are.
  const Json others = json_of(R"([3, {"role": "assistant", "tool_calls": 3}])");
  EXPECT_EQ(Json(with_arguments(others.as_array(), Arguments::kFilled)), others);
}

TEST(Messages, VariablesOfTheTemplateHaveTheirForm) {
  const auto variables = [](std::string_view row) {
    std::string out;
    const std::string error = message_of([&] { out = template_variables(json_of(row)).dump(); });
    return out.empty() ? error : out;
  };
  for (const auto& [row, expected] : NamedCases{
           {R"({"chat_template_kwargs": 3})", "chat_template_kwargs must be an object, found an integer"},
           {R"({"chat_template_kwargs": {"add_generation_prompt": true}})",
            "chat_template_kwargs must not hold add_generation_prompt, which the row has itself"},
           {R"({"tools": "["})", "tools is a text that is not valid JSON"},
           {R"({"tools": "3"})", "tools must be an array, found an integer"},
           {R"({"documents": {}})", "documents must be an array, found an object"},
           {R"({"documents": [], "tools": [{"name": "f", "strict": null}]})",
            R"({"tools": [{"name": "f"}]})"},
           {R"({"tools": [{"name": "f"}], "chat_template_kwargs": {"tools": [{"name": "f"}], "a": null}})",
            R"({"tools": [{"name": "f"}]})"}})
    EXPECT_EQ(variables(row), expected) << row;
}

TEST(Fields, OfARowSayWhatItIs) {
  for (const auto& [row, expected] : NamedCases{
           {"3", "a row must be an object, found an integer"},
           {R"({"rejected": "a"})",
            "chosen is missing although rejected is present (fields: rejected); expected one of: messages;"},
           {"{}", "a row has no field that holds its text (fields: none); expected one of: messages;"}}) {
    const std::string found = message_of([&] { format_of(json_of(row)); });
    EXPECT_TRUE(found.starts_with(expected)) << found;
  }
  for (const char* row : {R"({"messages": {}})", R"({"messages": []})", R"({"messages": [3]})"})
    EXPECT_EQ(format_of(json_of(row)), RowFormat::kMessages) << row;
  EXPECT_EQ(message_of([] { required_field(json_of(R"({"a": null})"), "b"); }),
            "b is missing (fields: a (null))");
}

TEST(Fields, ThatHoldNothingAreNoPictures) {
  for (const char* value : {"null", R"("")", "[]", "{}"})
    EXPECT_EQ(message_of([&] { refuse_media(Json::Object{{"image", json_of(value)}}); }), "no error");
  EXPECT_NE(message_of([] {
              refuse_media(Json::Object{{"video", 3}});
            }).find("has video"),
            std::string::npos);
}

TEST(Fields, ANulCharacterIsFoundAnywhere) {
  const Json nul(std::string("ab\0", 3));
  const auto found = [](const Json& value) { return message_of([&] { check_characters(value, ""); }); };
  const std::string rest = " has a NUL character (U+0000) at byte 2; a text has none: remove it";
  EXPECT_EQ(found(Json::Object{{"a", "x"}, {"b", Json::Array{"x", Json::Object{{"c", nul}}}}}),
            "b[1].c" + rest);
  EXPECT_EQ(found(Json::Object{{"a", Json::Object{{"b", Json::Array{1, nul}}}}}), "a.b[1]" + rest);
  EXPECT_EQ(found(Json::Object{{"a", Json::Array{"x", 3, nullptr}}}), "no error");
}

TEST(Fields, OfMessagesHaveOurNames) {
  const Columns columns = {{"messages", "dialog"}, {"content", "text"}};
  EXPECT_EQ(rename_columns(json_of(R"({"dialog": [3, {"role": "user", "text": "a", "content": "gone"}],
                                       "content": "stays", "prompt": "text"})"),
                           columns)
                .dump(),
            R"({"messages": [3, {"role": "user", "content": "a"}], "content": "stays", "prompt": "text"})");
}

TEST(UnusedFields, AreNamedOnceWhereverTheyStand) {
  RowOptions options;
  options.template_reads = [](std::string_view name) {
    return name == "tool_calls" || name == "arguments" || name == "known";
  };
  const auto unused = [&](std::string_view row, RowFormat format) {
    return unused_fields(json_of(row), format, options);
  };
  using Unused = std::vector<std::string>;
  // A call in its older form is read where calls are.
  EXPECT_EQ(unused(R"({"messages": [3, {"role": "assistant", "function_call": {"name": "f"},
    "content": [{"type": "text", "text": "a", "cache": 1}, 3],
    "tool_calls": [{"function": {"name": "f"}, "id": "1", "known": 1}, {"name": "g", "id": "2"}, 3]}],
    "chat_template_kwargs": {"known": 1, "unknown": 1, "null": null}, "documents": [1]})",
                   RowFormat::kMessages),
            (Unused{"messages[].content[].cache", "messages[].tool_calls[].id",
                    "chat_template_kwargs.unknown", "documents"}));
  EXPECT_EQ(unused(R"({"messages": [], "chat_template_kwargs": 3})", RowFormat::kMessages), Unused());
  // A text takes no variables of a template; a conversation does.
  EXPECT_EQ(unused(R"({"prompt": "a", "completion": "b", "known": 1})", RowFormat::kPromptCompletion),
            Unused{"known"});
  EXPECT_EQ(unused(R"({"completion": "b", "system": "s"})", RowFormat::kPromptCompletion), Unused{"system"});
  EXPECT_EQ(unused(R"({"chosen": [], "rejected": [], "system": "s"})", RowFormat::kPreference), Unused());
  EXPECT_EQ(unused(R"({"text": "a", "id": 1})", RowFormat::kAuto), (Unused{"text", "id"}));
  options.template_reads = [](std::string_view) { return false; };
  EXPECT_EQ(unused(R"({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]})",
                   RowFormat::kMessages),
            Unused{"messages[].function_call"});
}

}  // namespace
}  // namespace temper::data
