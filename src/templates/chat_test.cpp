#include "templates/chat.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"

namespace temper::templates {
namespace {

const Json kMessages = Json::Array{Json::Object{{"role", "user"}, {"content", "hi"}}};

TEST(ChatTemplate, ReadsTheConfigurationOfTheTokenizer) {
  const TemporaryDirectory folder;
  write_file(
      folder / "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}{{ tools is none }}",
                 "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null})");
  write_file(folder / "special_tokens_map.json",
             R"({"bos_token": "<other>", "pad_token": {"content": "<pad>"}})");
  const auto chat = ChatTemplate::load(folder.path());
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(chat->render(kMessages, false), "<s>hi</s><pad>True");
}

TEST(ChatTemplate, PrefersItsOwnFile) {
  const TemporaryDirectory folder;
  write_file(folder / "tokenizer_config.json", R"({"chat_template": "config"})");
  write_file(folder / "chat_template.jinja",
             "{% generation %}own{% endgeneration %} {{ add_generation_prompt }} {{ think }}\n");
  const auto chat = ChatTemplate::load(folder.path());
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(chat->render(kMessages, true, Json::Object{{"think", false}}), "own True False");
  const Rendered rendered = chat->render_with_generation(kMessages, false);
  EXPECT_EQ(rendered.text, "own False ");
  EXPECT_EQ(rendered.generation, (std::vector<std::pair<size_t, size_t>>{{0, 3}}));
}

TEST(ChatTemplate, TakesTheDefaultOfAList) {
  const TemporaryDirectory folder;
  write_file(
      folder / "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(kMessages, true), "d");
  write_file(folder / "tokenizer_config.json",
             R"({"chat_template": [{"name": "tool_use", "template": "t"}]})");
  EXPECT_THROW(ChatTemplate::load(folder.path()), Error);
}

// As in transformers: a list in the configuration, or files, which replace the list.
TEST(ChatTemplate, RowsWithToolsTakeTheTemplateForTools) {
  const Json tools = Json::Object{{"tools", Json::Array{Json::Object{{"name", "f"}}}}};
  const std::string list =
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t{{ tools | tojson }}"},
      {"name": "rag", "template": "r"}]})";
  const TemporaryDirectory folder;
  write_file(folder / "tokenizer_config.json", list);
  const auto listed = ChatTemplate::load(folder.path());
  EXPECT_EQ(listed->render(kMessages, true, tools), R"(t[{"name": "f"}])");
  EXPECT_EQ(listed->render_with_generation(kMessages, true, tools).text, R"(t[{"name": "f"}])");
  EXPECT_EQ(listed->render(kMessages, true), "d");
  EXPECT_EQ(listed->render(kMessages, true, Json::Object{{"tools", nullptr}}), "d");
  EXPECT_EQ(
      listed->notes,
      "conversations with tools take the chat template 'tool_use', others 'default'; the chat templates "
      "[rag] are used only if data.chat_template names them");
  EXPECT_EQ(ChatTemplate::choose(folder.path(), "rag").render(kMessages, true, tools), "r");

  write_file(folder / "chat_template.jinja", "own");
  make_directories(folder / "additional_chat_templates");
  write_file(folder / "additional_chat_templates/tool_use.jinja", "file");
  const auto filed = ChatTemplate::load(folder.path());
  EXPECT_EQ(filed->render(kMessages, true, tools), "file");
  EXPECT_EQ(filed->render(kMessages, true), "own");
  EXPECT_EQ(
      filed->notes,
      "conversations with tools take the chat template 'tool_use', others 'default'; the chat templates "
      "[default, tool_use, rag] in tokenizer_config.json are replaced by the folder's files with templates");
  EXPECT_EQ(named_template_files(folder.path()), std::vector<std::string>{std::string(kToolUseFile)});
}

TEST(ChatTemplate, TakesThatOfAProcessorWhereThereIsNoOther) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.json", R"({"chat_template": "p"})");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(kMessages, true), "p");
  EXPECT_EQ(ChatTemplate::load(folder.path())->notes, "");
  write_file(folder / "chat_template.jinja", "own");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(kMessages, true), "own");
  EXPECT_EQ(ChatTemplate::load(folder.path())->notes,
            "the other chat template in chat_template.json is not used");
}

TEST(ChatTemplate, KnowsWhatIsNotLookedAt) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja",
             "{% for m in messages %}{{ m.role ~ m['content'] ~ m.get('a') }}{% endfor %}{{ tools }}{{ "
             "documents }}");
  const Json messages =
      Json::Array{Json::Object{{"role", "user"}, {"content", "hi"}, {"a", "b"}, {"name", "n"}, {"cut", 1}}};
  const Rendered rendered =
      ChatTemplate::load(folder.path())
          ->render_with_generation(messages, false, Json::Object{{"tools", Json::Array{"tool"}}});
  EXPECT_EQ(rendered.unread, (std::vector<std::vector<std::string>>{{"name", "cut"}}));
  EXPECT_EQ(rendered.tool_bytes, 8u);  // ['tool']
  EXPECT_EQ(rendered.document_bytes, 0u);
  EXPECT_EQ(rendered.nones, 1);
}

TEST(ChatTemplate, AnotherMayBeChosen) {
  const TemporaryDirectory folder;
  write_file(
      folder / "tokenizer_config.json",
      R"({"eos_token": "!", "chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]})");
  make_directories(folder / "additional_chat_templates");
  write_file(folder / "additional_chat_templates/long.jinja", "long");
  write_file(folder / "own.jinja", "own{{ eos_token }}");
  const auto text = [&](const std::string& name) {
    return ChatTemplate::choose(folder.path(), name).render(kMessages, true);
  };
  EXPECT_EQ(text("tools") + text("long") + text(folder / "own.jinja"), "tlongown!");
  EXPECT_EQ(ChatTemplate::choose(folder.path(), "tools").text, "t");
  try {
    text("other");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "[data.chat_template] 'other' is not a file, and the model has no chat template of that name; it has "
        "[tools, default, long]");
  }
}

TEST(ChatTemplate, KnowsWhichMessageWroteWhat) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja",
             "{% for m in messages %}{{ m.role ~ ': ' ~ (m.content | trim).split('/')[1] ~ m.calls | tojson "
             "}}{% endfor %}");
  const Json messages =
      Json::Array{Json::Object{{"role", "user"}, {"content", " a/b "}, {"calls", 1}},
                  Json::Object{{"role", "user"}, {"content", "c/d"}, {"calls", Json::Array{"e"}}}};
  const Rendered rendered = ChatTemplate::load(folder.path())->render_with_generation(messages, false);
  EXPECT_EQ(rendered.text, "user: b1user: d[\"e\"]");
  ASSERT_EQ(rendered.origins.size(), 3u);
  EXPECT_EQ(rendered.text.substr(rendered.origins[0].begin, 1), "b");
  EXPECT_EQ(rendered.origins[0].end, rendered.origins[0].begin + 1);
  EXPECT_EQ(rendered.text.substr(rendered.origins[1].begin), "d[\"e\"]");
  EXPECT_EQ(rendered.origins[1].source, (Source{1, Field::kContent}));
  EXPECT_EQ(rendered.origins[2].source, (Source{1, Field::kOther}));
}

TEST(ChatTemplate, KnowsWhichFieldWasWritten) {
  const TemporaryDirectory folder;
  write_file(
      folder / "chat_template.jinja",
      "{% for m in messages %}{{ m.content ~ m.thinking ~ m.tool_calls | tojson ~ m.name ~ (m | tojson) }}"
      "{% endfor %}");
  const Json messages = Json::Array{Json::Object{{"role", "user"},
                                                 {"content", "<think>a</think>b"},
                                                 {"thinking", "c"},
                                                 {"tool_calls", Json::Array{"d"}},
                                                 {"name", "e"}}};
  const Rendered rendered = ChatTemplate::load(folder.path())->render_with_generation(messages, false);
  std::vector<std::pair<std::string, Field>> found;
  for (const auto& [begin, end, source] : rendered.origins)
    found.emplace_back(rendered.text.substr(begin, end - begin), source.field);
  ASSERT_EQ(found.size(), 8u);
  EXPECT_EQ(found.back().second, Field::kSeveral);
  found.pop_back();
  EXPECT_EQ(found, (std::vector<std::pair<std::string, Field>>{{"<think>", Field::kOther},
                                                               {"a", Field::kReasoning},
                                                               {"</think>", Field::kOther},
                                                               {"b", Field::kContent},
                                                               {"c", Field::kReasoning},
                                                               {"[\"d\"]", Field::kToolCalls},
                                                               {"e", Field::kOther}}));
}

TEST(ChatTemplate, MayBeAbsent) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(ChatTemplate::load(folder.path()).has_value());
  write_file(folder / "tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_FALSE(ChatTemplate::load(folder.path()).has_value());
}

TEST(ChatTemplate, ErrorsNameTheFile) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja", "\n{{ messages[0].nope.x }}");
  try {
    ChatTemplate::load(folder.path())->render(kMessages, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[" + (folder / "chat_template.jinja") + ":2] 'dict object' has no attribute 'nope'");
  }
}

}  // namespace
}  // namespace temper::templates
