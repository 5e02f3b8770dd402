#include "data/losses.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/chat_template.h"
#include "data/row.h"
#include "data/test_support.h"

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
            {"role 'usr' is none that the chat template names"}},
           {R"({"prompt": "1+1=", "completion": "2"})",
            {"the row is plain text, so it is not put into the model's chat template"}}})
    EXPECT_EQ(encode_in(kWritesSparingly, row).lost, expected) << row;
}

// A template that writes no thinking of earlier turns: these are learnt from texts of their own, if at all.
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
  EXPECT_EQ(encoder_in(kWritesSparingly).losses_of_prompt(Json::parse(row, "row")),
            LossLines{"the chat template leaves out content of role 'system'"});
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
