#include "data/chat/empty_values.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/chat/chat_template.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using RowTexts = std::vector<std::string>;

EncodedRow encode_in_template(std::string_view source, std::string_view row, Goal goal = Goal::kAny) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja", source);
  auto loaded = templates::ChatTemplate::load(folder.path());
  RowOptions options;
  options.goal = goal;
  const auto shared = std::make_shared<const templates::ChatTemplate>(std::move(*loaded));
  return RowEncoder(qwen(), renderer_of(shared), options).encode(Json::parse(row, "row"));
}

std::string written_text(const Example& example) { return qwen().decode(example.ids, false); }

// The template of a report about the text None that was trained on; and one that writes all fields of a
// message.
constexpr std::string_view kWritesCalls =
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{{- m.content }}{%- if m.tool_calls %}"
    "{%- for t in m.tool_calls %}{{- '<call>' + t.function.name + ' ' + (t.function.arguments | tojson) + "
    "'</call>' }}{%- endfor %}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";
constexpr std::string_view kWritesEverything =
    "{{- tools is none }}{{ tools or '' }}{{ mood is defined }}{% for m in messages -%}<|im_start|>{{ m.role "
    "}}\n"
    "{% for k, v in m.items() if k != 'role' %}{{ k }}={{ v }};{% endfor %}<|im_end|>\n{% endfor -%}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

void expect_same_rows(std::string_view source, const RowTexts& rows) {
  const EncodedRow absent = encode_in_template(source, rows.at(0));
  for (const std::string& row : rows) {
    const EncodedRow found = encode_in_template(source, row);
    ASSERT_EQ(found.examples.size(), absent.examples.size()) << row;
    for (size_t i = 0; i < found.examples.size(); ++i) {
      EXPECT_EQ(written_text(found.examples[i]), written_text(absent.examples[i])) << row;
      EXPECT_EQ(found.examples[i].loss_mask, absent.examples[i].loss_mask) << row;
      EXPECT_EQ(written_text(found.examples[i]).find("None"), std::string::npos) << row;
    }
    EXPECT_EQ(found.lost, absent.lost) << row;
    EXPECT_EQ(found.unused, absent.unused) << row;
  }
}

TEST(EmptyValues, NullsBesideCallsAreNotLearnt) {
  const auto row = [](const std::string& call, const std::string& others) {
    return R"({"messages": [{"role": "user", "content": "Weather?")" + others +
           R"(}, {"role": "assistant", )" + call +
           R"("tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"city": "Paris"}}}]},
           {"role": "tool", "content": "rain")" +
           others + R"(}, {"role": "assistant", "content": "It rains")" + others + "}]}";
  };
  const std::string nulls =
      R"(, "name": null, "reasoning_content": null, "tool_calls": null, "tool_call_id": null)";
  const std::string empty = R"(, "name": "", "reasoning": "", "tool_calls": [], "function_call": null)";
  const RowTexts rows = {row("", ""), row(R"("content": null, )", ""), row(R"("content": "", )", nulls),
                         row(R"("content": [], "name": null, )", empty)};
  expect_same_rows(kWritesCalls, rows);
  expect_same_rows(kWritesEverything, rows);
  // As Jinja2 writes it without the key.
  EXPECT_EQ(written_text(encode_in_template(kWritesCalls, rows[1]).examples.at(0)),
            "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<call>look {\"city\": "
            "\"Paris\"}</call><|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\nIt "
            "rains<|im_end|>\n");
}

TEST(EmptyValues, NullsOfNestedFieldsAreAbsent) {
  const auto row = [](const std::string& more, const std::string& schema, const std::string& arguments) {
    return "{" + more +
           R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string")" +
           schema +
           R"(}}}}}], "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [)"
           R"({"function": {"name": "f", "arguments": {"a": "x", "list": [1])" +
           arguments + R"(}}}]}, {"role": "assistant", "content": "r"}]})";
  };
  for (const std::string_view source : {kWritesCalls, kWritesEverything})
    expect_same_rows(source,
                     {row("", "", ""), row(R"("documents": null, "chat_template_kwargs": {"mood": null}, )",
                                           R"(, "enum": null, "items": null)", R"(, "b": null)")});
  const std::string without = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a"}])";
  expect_same_rows(kWritesEverything,
                   {without + "}", without + R"(, "tools": null})", without + R"(, "tools": []})",
                    without + R"(, "tools": "", "system": null})",
                    without + R"(, "chat_template_kwargs": {"mood": null}, "documents": []})"});
}

TEST(EmptyValues, AreAbsentInEveryFormat) {
  expect_same_rows(kWritesEverything,
                   {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})",
                    R"({"conversations": [{"from": "human", "value": "q", "weight": null},
                              {"from": "gpt", "value": "a", "train": null}], "system": "", "tools": null})"});
  expect_same_rows(kWritesEverything,
                   {R"({"instruction": "q", "output": "a"})",
                    R"({"instruction": "q", "output": "a", "input": null, "history": [], "system": null})"});
  expect_same_rows(
      kWritesEverything,
      {R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]})",
       R"({"prompt": [{"role": "user", "content": "q", "name": null}], "messages": null,
                 "completion": [{"role": "assistant", "content": "a", "tool_calls": null}]})"});
  expect_same_rows(
      kWritesEverything,
      {R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                             "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})",
       R"({"prompt": "", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                             "rejected": [{"role": "user", "content": "q", "name": null}, {"role": "assistant", "content": "b"}]})"});
}

// Such templates write calls only where the content is None, or have no None among arguments.
TEST(EmptyValues, CallsAreWrittenInTheFormThatTheTemplateNeeds) {
  constexpr std::string_view kNeedsNone =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and m.content is none %}"
      "{% for t in m.tool_calls %}<call>{{ t.function.name }}{% for k, v in t.function.arguments.items() %} "
      "{{ k }}={{ v }}{% endfor %}</call>{% endfor %}{% else %}{{ '' + m.content }}{% endif %}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const auto row = [](const std::string& content, const std::string& arguments) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", )" + content +
           R"("tool_calls": [{"function": {"name": "f", "arguments": )" + arguments + "}}]}]}";
  };
  const std::string given = R"({"a": 1})", text = R"("{\"a\": 1, \"b\": null}")";
  expect_same_rows(kNeedsNone, {row("", given), row(R"("content": null, )", given),
                                row(R"("content": "", )", given), row("", text)});
  const EncodedRow encoded = encode_in_template(kNeedsNone, row("", text));
  EXPECT_EQ(target_runs(encoded.examples.at(0)), RowTexts{"<call>f a=1</call><|im_end|>"});
  EXPECT_EQ(encoded.lost, RowTexts());
  expect_same_rows(kNeedsNone, {row("", "{}"), row("", "null"), row("", R"("")")});
  EXPECT_EQ(message_of([&] {
              encode_in_template(kNeedsNone, R"({"messages": [{"role": "user", "content": "q"},
                {"role": "assistant", "tool_calls": [null]}]})");
            }),
            "messages[1].tool_calls[0] is null, expected {\"function\": {\"name\": …, \"arguments\": …}}");
}

}  // namespace
}  // namespace temper::data
