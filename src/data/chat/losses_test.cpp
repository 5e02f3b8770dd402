#include "data/chat/losses.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "data/chat/chat_template.h"
#include "data/rows/row.h"
#include "data/sources/reader.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using LossLines = std::vector<std::string>;

RowEncoder encoder_in(std::string_view source, LossOn loss = LossOn::kAllTurns) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja", source);
  auto loaded = templates::ChatTemplate::load(folder.path());
  const auto shared = std::make_shared<const templates::ChatTemplate>(std::move(*loaded));
  RowOptions options;
  options.goal = Goal::kAny;
  options.loss = loss;
  options.template_reads = [shared](std::string_view name) { return shared->mentions(name); };
  return RowEncoder(qwen(), renderer_of(shared), options);
}

EncodedRow encode_in(std::string_view source, const std::string& row, LossOn loss = LossOn::kAllTurns) {
  return encoder_in(source, loss).encode(Json::parse(row, "row"));
}

// A system message is written only where it is the first, and calls only by name; tools where the last
// message is the user's.
constexpr std::string_view kWritesSparingly =
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}<|im_start|>{{ m.role }}\n"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}{{ m.content[:20] }}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if messages[-1].role == 'user' and tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string conversation_of(const std::string& first, const std::string& last, const std::string& more = "") {
  return R"({"messages": [)" + first + R"({"role": "user", "content": "q"}, {"role": "assistant", )" + last +
         "}]" + more + "}";
}

TEST(Losses, EveryPartOfAMessageThatIsNotWrittenIsNamed) {
  const std::string system = R"({"role": "system", "content": "one"}, )";
  for (const auto& [row, expected] : std::vector<std::pair<std::string, LossLines>>{
           {conversation_of(system, R"("content": "a")"), {}},
           {conversation_of(system + R"({"role": "system", "content": "two"}, )", R"("content": "a")"),
            {"the chat template leaves out content of role 'system'"}},
           {conversation_of("", R"("content": "a text that is longer than the others")"),
            {"the chat template leaves out a part of content of role 'assistant'"}},
           {conversation_of("", R"("content": "a", "reasoning": "why")"),
            {"the chat template leaves out reasoning of role 'assistant'"}},
           {conversation_of("", R"("tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}])"), {}},
           {conversation_of("", R"("tool_calls": [{"function": {"name": "f", "arguments": {"a": "text"}}}])"),
            {"the chat template leaves out a part of tool_calls of role 'assistant'"}},
           {conversation_of("", R"("content": "a")", R"(, "tools": [{"function": {"name": "f"}}])"),
            {"the chat template leaves out tools"}},
           {conversation_of(R"({"role": "usr", "content": "u"}, )", R"("content": "a")"),
            {"a message has a role that is not in the chat template"}},
           {R"({"prompt": "1+1=", "completion": "2"})",
            {"the row is plain text, so it is not put into the model's chat template"}}})
    EXPECT_EQ(encode_in(kWritesSparingly, row).lost, expected) << row;
}

// A template that writes no thinking of earlier turns: these are trained on texts of their own, if at all.
TEST(Losses, ThinkingThatIsLearntAloneIsNotLost) {
  constexpr std::string_view kThinksLast =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content and loop.last %}<think>"
      "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const std::string row = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "reasoning": "why"}, {"role": "user", "content": "q"},
    {"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(encode_in(kThinksLast, row).lost, LossLines());
  EXPECT_EQ(encode_in(kThinksLast, row, LossOn::kAll).lost,
            LossLines{"the chat template leaves out reasoning of role 'assistant'"});
}

TEST(Losses, PromptsOfRolloutsAreLookedAt) {
  const std::string row = R"({"prompt": [{"role": "system", "content": "one"},
    {"role": "user", "content": "q"}, {"role": "system", "content": "two"}, {"role": "user", "content": "r"}],
    "tools": [{"function": {"name": "f"}}]})";
  EXPECT_EQ(encoder_in(kWritesSparingly).asked_of(Json::parse(row, "row")).lost,
            LossLines{"the chat template leaves out content of role 'system'"});
}

TEST(Losses, PromptsSayWhatTheyDoNotTake) {
  const Json text =
      Json::parse(R"({"prompt": "1+1=", "system": "s", "tools": [{"name": "f"}], "solution": "2"})", "row");
  const LossLines without = {"the prompt is plain text, without system",
                             "the prompt is plain text, without tools"};
  EXPECT_EQ(RowEncoder(qwen(), nullptr, RowOptions()).asked_of(text).lost, without);
  const Json instruction = Json::parse(R"({"instruction": "1+1=", "system": "s", "output": "2"})", "row");
  RowOptions drops;
  drops.drop_answer = true;
  EXPECT_EQ(RowEncoder(qwen(), nullptr, drops).asked_of(instruction).lost, LossLines());
  const Asked named =
      encoder_in(kWritesSparingly)
          .asked_of(Json::parse(R"({"messages": [{"role": "user", "content": "q", "name": "Bob", "id": 1}]})",
                                "row"));
  EXPECT_EQ(named.lost, LossLines());
  EXPECT_EQ(named.notes, LossLines{"unused fields: messages[].name, messages[].id"});
}

TEST(Losses, PromptsWithPicturesAreRefused) {
  const RowEncoder encoder = encoder_in(kWritesSparingly);
  for (const std::string row :
       {R"({"messages": [{"role": "user", "content": "What is in it?"}], "images": ["a.png"]})",
        R"({"prompt": "What is in it?", "image": "a.png"})"}) {
    const Json parsed = Json::parse(row, "row");
    for (const std::string& message :
         {message_of([&] { encoder.prompt_of(parsed); }), message_of([&] { encoder.asked_of(parsed); }),
          message_of([&] { encoder.messages_of(parsed); })})
      EXPECT_NE(message.find(", which is not read"), std::string::npos) << message;
  }
  EXPECT_NE(message_of([&] {
              encoder.asked_of(Json::parse(R"({"prompt": "a\u0000b"})", "row"));
            }).find("NUL character"),
            std::string::npos);
}

// Templates leave it out on purpose: it is not what the model is asked with.
TEST(Losses, ReasoningOfEarlierTurnsIsNotMissingInPrompts) {
  constexpr std::string_view kThinksLast =
      "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
      "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.index0 < "
      "ns.last %}"
      "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const RowEncoder encoder = encoder_in(kThinksLast);
  const auto lost = [&](const std::string& messages) {
    return encoder.asked_of(Json::parse("{\"messages\": [" + messages + "]}", "row")).lost;
  };
  const std::string user = R"({"role": "user", "content": "q"})",
                    answer = R"({"role": "assistant", "content": "<think>why</think>a"})",
                    field = R"({"role": "assistant", "content": "a", "reasoning_content": "why"})",
                    result = R"({"role": "tool", "content": "r"})";
  EXPECT_EQ(lost(user + ", " + answer + ", " + user), LossLines());
  EXPECT_EQ(lost(user + ", " + field + ", " + user), LossLines());
  EXPECT_EQ(lost(user + ", " + field + ", " + result),
            LossLines{"the chat template leaves out reasoning of role 'assistant'"});
}

// Roles are data: a file may have as many as rows.
TEST(Losses, RolesOfDataAreOneLoss) {
  const RowEncoder encoder = encoder_in(
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] or loop.index0 == 1 %}<|im_start|>{{ "
      "m.role }}\n"
      "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  RowCounts counts;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 300; ++i) {
    const std::string role = fmt::format("Person{}", i);
    ReadRow read;
    read.row = encoder.encode(
        Json::parse(R"({"messages": [{"role": "user", "content": "q"}, {"role": ")" + role +
                        R"(", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": ")" + role +
                        R"(", "content": "q"}, {"role": "assistant", "content": "a"}]})",
                    "row"));
    read.place = [i] { return fmt::format("roles:{}", i); };
    counts.add(read, OnBadRow::kStop);
  }
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(counts.lost,
            (std::map<std::string, int64_t>{{"the chat template leaves out content of an uncommon role", 300},
                                            {"a message has a role that is not in the chat template", 300}}));
  EXPECT_LE(std::count(warnings.begin(), warnings.end(), '\n'), 2) << warnings;
}

TEST(Losses, AsManyLossesAreCountedAsCanBeRead) {
  RowCounts counts;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 300; ++i) {
    ReadRow read;
    read.row.lost = {fmt::format("made of data {}", i)};
    read.place = [] { return "rows"; };
    counts.add(read, OnBadRow::kStop);
  }
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(counts.lost.size(), kNamesCounted);
  EXPECT_LE(std::count(warnings.begin(), warnings.end(), '\n'), std::ssize(counts.lost)) << warnings;
}

// Continued pretraining on a model that has a template loses nothing; one line says how it is trained.
TEST(Losses, TextsAreReportedOnceAndNotCounted) {
  const RowEncoder encoder = encoder_in(kWritesSparingly);
  RowCounts counts;
  int asked = 0;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 10; ++i) {
    ReadRow read;
    read.row = encoder.encode(Json::parse(R"({"text": "News."})", "row"));
    read.place = [&] { return fmt::format("texts:{}", ++asked); };
    counts.add(read, OnBadRow::kStop);
  }
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(counts.lost.empty());
  EXPECT_EQ(encoder.encode(Json::parse(R"({"text": "News."})", "row")).notes,
            LossLines{"the row is plain text, so it is not put into the model's chat template"});
  EXPECT_LE(asked, 1) << "finding the line of a row reads much of its file";
  EXPECT_EQ(printed.find("warning"), std::string::npos) << printed;
}

// Losses are found in the texts that are made anyway.
TEST(Losses, NothingIsRenderedForThemAlone) {
  int renders = 0;
  const ChatRenderer counted = [&](const Json& messages, bool asks, const Json& extra) {
    ++renders;
    return chatml()(messages, asks, extra);
  };
  const RowEncoder encoder(qwen(), counted, RowOptions());
  const auto count = [&](const auto& use) {
    renders = 0;
    use();
    return renders;
  };
  const Json answered = Json::parse(conversation_of("", R"("content": "a")"), "row"),
             asks = Json::parse(R"({"messages": [{"role": "user", "content": "q"}]})", "row");
  EXPECT_EQ(count([&] { encoder.encode(answered); }), 2);  // the whole, and the prompt
  EXPECT_EQ(count([&] { encoder.asked_of(asks); }), 1);
  EXPECT_EQ(count([&] { encoder.prompt_text(asks.at("messages").as_array(), asks); }), 1);
  EXPECT_EQ(count([&] { encoder.unused_of(answered); }), 1);
  EXPECT_EQ(encoder.unused_of(answered), encoder.encode(answered).unused);
}

// Tools and calls may have no function around their names.
TEST(Losses, ToolsOfAnyFormAreLookedFor) {
  const auto lost = [](const std::string& tools) {
    return encode_in(kWritesSparingly, conversation_of("", R"("content": "a")", R"(, "tools": )" + tools))
        .lost;
  };
  const LossLines left_out = {"the chat template leaves out tools"};
  EXPECT_EQ(lost(R"([{"name": "f"}])"), left_out);
  EXPECT_EQ(lost(R"([{"name": "f", "function": 3}])"), left_out);
  EXPECT_EQ(lost(R"(["f"])"), LossLines());  // no tool that is described
  const std::string call = R"("tool_calls": [{"name": "look", "arguments": {"a": "b"}}])";
  EXPECT_EQ(encode_in("{% for m in messages %}{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
                      "{% if add_generation_prompt %}assistant:{% endif %}",
                      conversation_of("", call))
                .lost,
            LossLines{"the chat template leaves out tool_calls of role 'assistant'"});
  // A variable that is no list is the template's own.
  EXPECT_EQ(encode_in(kWritesSparingly,
                      conversation_of("", R"("content": "a")", R"(, "chat_template_kwargs": {"tools": "f"})"))
                .lost,
            LossLines());
}

TEST(Losses, PromptsMayHaveNoUser) {
  const Json row = Json::parse(R"({"prompt": [{"role": "system", "content": "one"}]})", "row");
  EXPECT_EQ(encoder_in(kWritesSparingly).asked_of(row).lost, LossLines());
}

TEST(Losses, ARoleThatTheTemplateNamesIsNone) {
  const std::string row = conversation_of(R"({"role": "critic", "content": "u"}, )", R"("content": "a")");
  EXPECT_EQ(encode_in(std::string(kWritesSparingly) + "{% if critic %}{% endif %}", row).lost, LossLines());
}

TEST(Losses, NamesOfOneRowAreBounded) {
  LossLines names;
  for (int i = 0; i < 1100; ++i)
    for (int times = 0; times < 2; ++times) add_once(names, fmt::format("name {}", i));
  EXPECT_EQ(names.size(), kNamesKept);
  EXPECT_EQ(names.back(), "name 1023");
}

// Names in the template are not what it looks at: a function has one, too.
TEST(Losses, FieldsThatTheTemplateDoesNotLookAtAreUnused) {
  const std::string row = conversation_of("", R"("content": "a", "name": "Ann", "tools": ["t"])");
  EXPECT_EQ(encode_in(kWritesSparingly, row).unused, (LossLines{"messages[].name", "messages[].tools"}));
  const std::string reads =
      std::string(kWritesSparingly) + "{% for m in messages %}{{ m.get('name') }}{% endfor %}";
  EXPECT_EQ(encode_in(reads, conversation_of("", R"("content": "a", "name": "Ann")")).unused, LossLines());
}

TEST(Losses, NoneOfTheTemplatesOwnIsNamed) {
  EXPECT_EQ(
      encode_in(std::string(kWritesSparingly) + "{{ documents }}", conversation_of("", R"("content": "a")"))
          .lost,
      LossLines{"the chat template writes the word None for a value that is missing"});
}

TEST(Losses, ARowSaysNothingInTwoPlaces) {
  const std::string user = R"({"role": "user", "content": "q"})",
                    answer = R"({"role": "assistant", "content": "a"})";
  const std::string system = R"({"role": "system", "content": "one"}, )";
  const auto rows = [&](const std::string& first, const std::string& field) {
    return LossLines{R"({"messages": [)" + first + user + ", " + answer + "]" + field + "}",
                     R"({"prompt": [)" + first + user + R"(], "completion": [)" + answer + "]" + field + "}",
                     R"({"prompt": [)" + first + user + R"(], "chosen": [)" + answer +
                         R"(], "rejected": [{"role": "assistant", "content": "b"}])" + field + "}",
                     R"({"prompt": [)" + first + user + "]" + field + "}"};
  };
  const LossLines with_message = rows(system, ""), with_field = rows("", R"(, "system": "one")"),
                  with_both = rows(system, R"(, "system": "one")"),
                  with_two = rows(system, R"(, "system": "two")");
  for (size_t i = 0; i < with_message.size(); ++i) {
    const EncodedRow expected = encode_in(kWritesSparingly, with_message[i]);
    for (const std::string& row : {with_field[i], with_both[i]}) {
      const EncodedRow found = encode_in(kWritesSparingly, row);
      for (size_t k = 0; k < expected.examples.size(); ++k) {
        EXPECT_EQ(found.examples.at(k).ids, expected.examples[k].ids) << row;
        EXPECT_EQ(found.examples.at(k).loss_mask, expected.examples[k].loss_mask) << row;
      }
      EXPECT_EQ(found.unused, LossLines()) << row;
    }
    EXPECT_EQ(message_of([&] { encode_in(kWritesSparingly, with_two[i]); }),
              "the field system and the first message, of role system, differ; expected one of them");
  }
  for (const auto& [row, expected] : std::vector<std::pair<std::string, std::string>>{
           {conversation_of("", R"("content": "a", "reasoning": "x", "thinking": "y")"),
            "messages[1] has thinking and another reasoning; expected one of them"},
           {conversation_of("",
                            R"("tool_calls": [{"function": {"name": "f"}}], "function_call": {"name": "g"})"),
            "messages[1] has tool_calls and another function_call; expected one of them"},
           {conversation_of(
                "", R"("content": "a")",
                R"(, "tools": [{"name": "f"}], "chat_template_kwargs": {"tools": [{"name": "g"}]})"),
            "tools and chat_template_kwargs.tools differ; expected one of them"},
           {conversation_of("", R"("content": "a")", R"(, "chat_template_kwargs": {"messages": []})"),
            "chat_template_kwargs must not hold messages, which the row has itself"}})
    EXPECT_EQ(message_of([&] { encode_in(kWritesSparingly, row); }), expected) << row;
  // Of two names for one thing, the same in both is fine.
  EXPECT_EQ(encode_in(kWritesSparingly, conversation_of("", R"("tool_calls": [{"function": {"name": "f"}}],
                                              "function_call": {"name": "f"})"))
                .lost,
            LossLines());
}

TEST(Losses, TextsDoNotTakeWhatConversationsDo) {
  EXPECT_EQ(encode_in(kWritesSparingly,
                      R"({"prompt": "1+1=", "completion": "2", "system": "s", "tools": [{"name": "f"}]})")
                .unused,
            (LossLines{"system", "tools"}));
  EXPECT_EQ(encode_in(kWritesSparingly, conversation_of("", R"("content": "a")",
                                                        R"(, "chat_template_kwargs": {"thinkin": true})"))
                .unused,
            LossLines{"chat_template_kwargs.thinkin"});
}

}  // namespace
}  // namespace temper::data
