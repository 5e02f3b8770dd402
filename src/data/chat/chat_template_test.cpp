#include "data/chat/chat_template.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/rows/row.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using Runs = std::vector<std::string>;

// In the manner of Qwen3: thinking is written only behind the last user message.
constexpr std::string_view kThinking = R"jinja(
{%- set last = namespace(query=0) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.query = loop.index0 %}{% endif %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('unexpected role ' + m.role) }}{% endif -%}
{{- '<|im_start|>' + m.role + '\n' -}}
{%- set content = m.content -%}
{%- set thinking = '' -%}
{%- if '</think>' in content -%}
{%- set thinking = content.split('</think>')[0].split('<think>')[-1].strip() -%}
{%- set content = content.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{%- if m.role == 'assistant' and loop.index0 > last.query and (loop.last or thinking) -%}
{{- '<think>\n' + thinking + '\n</think>\n\n' -}}
{%- endif -%}
{{- content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
)jinja";

constexpr std::string_view kMarked = R"jinja(
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' -}}
{%- if m.role == 'assistant' -%}
{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ m.content + '<|im_end|>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
)jinja";

constexpr std::string_view kRow = R"({"messages": [{"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello!"},
  {"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hello!"}]})";

EncodedRow encode_row(std::string_view source, std::string_view row) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja", source);
  auto loaded = templates::ChatTemplate::load(folder.path());
  auto shared = std::make_shared<const templates::ChatTemplate>(std::move(*loaded));
  return RowEncoder(qwen(), renderer_of(shared), {}).encode(Json::parse(row, "row"));
}

Example encode(std::string_view source, std::string_view row) {
  return encode_row(source, row).examples.at(0);
}

std::vector<Runs> runs_of(std::string_view source, std::string_view row) {
  std::vector<Runs> runs;
  for (const Example& example : encode_row(source, row).examples) runs.push_back(target_runs(example));
  return runs;
}

// The first message is asked for its role, and a system message is written where there is none.
constexpr std::string_view kWithSystem = R"jinja(
{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
)jinja";

constexpr std::string_view kNeedsAUser = R"jinja(
{%- if messages | length == 1 and messages[0].role == 'system' %}{{ raise_exception('no user') }}{% endif -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
)jinja";

TEST(ChatTemplate, TheAssistantMayBegin) {
  const std::string opens = R"({"messages": [{"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Bye."}]})";
  const std::string behind_system = R"({"messages": [{"role": "system", "content": "Be brief."},
    {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Hi"}]})";
  for (const std::string_view source : {kWithSystem, kNeedsAUser, kMarked}) {
    EXPECT_EQ(target_runs(encode(source, opens)), (Runs{"Hello!<|im_end|>", "Bye.<|im_end|>"}));
    EXPECT_EQ(target_runs(encode(source, behind_system)), Runs{"Hello!<|im_end|>"});
  }
  // A template without a generation prompt says what is wrong itself.
  const std::string refusal = message_of([&] {
    encode("{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}", opens);
  });
  EXPECT_NE(refusal.find("no system"), std::string::npos) << refusal;
}

TEST(ChatTemplate, FindsTurnsOfAThinkingTemplate) {
  EXPECT_EQ(runs_of(kThinking, kRow),
            (std::vector<Runs>{{"<think>\nA greeting.\n</think>\n\nHello!<|im_end|>"},
                               {"<think>\n\n</think>\n\nHello!<|im_end|>"}}));
}

TEST(ChatTemplate, UsesGenerationBlocks) {
  EXPECT_EQ(target_runs(encode(kMarked, kRow)),
            (Runs{"<think>\nA greeting.\n</think>\n\nHello!<|im_end|>", "Hello!<|im_end|>"}));
}

// In the manner of R1: an open <think> in the generation prompt, and no thinking in any answer.
constexpr std::string_view kNeverThinks = R"jinja(
{%- for m in messages -%}
{%- set content = m.content -%}
{%- if m.role == 'assistant' and '</think>' in content %}{% set content = content.split('</think>')[-1] | trim %}{% endif -%}
{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif -%}
)jinja";

TEST(ChatTemplate, ThinkingThatIsNeverWrittenIsLearntBehindTheGenerationPrompt) {
  EXPECT_EQ(runs_of(kNeverThinks, kRow),
            (std::vector<Runs>{{"A greeting.\n</think>\n\nHello!<|im_end|>"}, {"Hello!<|im_end|>"}}));
  EXPECT_EQ(runs_of(kNeverThinks, R"({"messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "reasoning_content": "Hm.", "content": "Hello!"}]})"),
            std::vector<Runs>{{"Hm.\n</think>\n\nHello!<|im_end|>"}});
}

TEST(ChatTemplate, ThinkingThatTheAnswerQuotesIsLearnt) {
  EXPECT_EQ(runs_of(kNeverThinks, R"({"messages": [{"role": "user", "content": "2 + 2"},
    {"role": "assistant", "reasoning_content": "4", "content": "It is 4."}]})"),
            std::vector<Runs>{{"4\n</think>\n\nIt is 4.<|im_end|>"}});
}

// Calls behind the answer are no thinking either.
TEST(ChatTemplate, ThinkingThatACallRepeatsIsLearnt) {
  std::string source(kNeverThinks);
  const std::string end = "content + '<|im_end|>' -}}";
  source.replace(
      source.find(end), end.size(),
      "content -}}{%- for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor -%}{{- '<|im_end|>' -}}");
  EXPECT_EQ(runs_of(source, R"({"messages": [{"role": "user", "content": "2 + 2"}, {"role": "assistant",
    "content": "<think>\nadd\n</think>\n\n", "tool_calls": [{"type": "function", "function": {"name": "add",
    "arguments": {}}}]}]})"),
            std::vector<Runs>{{"add\n</think>\n\nadd<|im_end|>"}});
}

// What a template writes in front of a turn's own words belongs to the answer: a call's opening.
TEST(ChatTemplate, CallsBehindThinkingKeepTheirOpening) {
  constexpr std::string_view kCalls = R"jinja(
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' -}}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + call.function.name + '</tool_call>' }}{% endfor -%}
{{- m.content + '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif -%}
)jinja";
  EXPECT_EQ(runs_of(kCalls, R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant",
    "content": "", "reasoning_content": "Hm.", "tool_calls": [{"type": "function", "function": {"name": "f",
    "arguments": {}}}]}]})"),
            std::vector<Runs>{{"Hm.\n</think>\n\n<tool_call>f</tool_call><|im_end|>"}});
}

// In the manner of GLM: what ends a turn is the first token of the next.
constexpr std::string_view kOpenEnds = R"jinja(
{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' + m.content }}{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
)jinja";

TEST(ChatTemplate, ATurnWithoutAnEndEndsWithTheTokenThatFollows) {
  EXPECT_EQ(runs_of(kOpenEnds, R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]})"),
            (std::vector<Runs>{{"b<|im_start|>", "c<|im_start|>"}}));
}

// Blocks mark the turns, but the thinking of the first is gone once the next user asks.
TEST(ChatTemplate, MarkedTurnsWhoseThinkingIsDroppedLaterAreLearntOnTheirOwn) {
  std::string source(kThinking);
  const std::string content = "{{- content + '<|im_end|>\\n' -}}";
  source.replace(source.find(content), content.size(), R"({%- if m.role == 'assistant' -%}
{% generation %}{{ content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ content + '<|im_end|>\n' }}{% endif -%})");
  EXPECT_EQ(runs_of(source, kRow), (std::vector<Runs>{{"Hello!<|im_end|>"}, {"Hello!<|im_end|>"}}));
}

// Marks turns, and writes thinking and calls of the last one only.
constexpr std::string_view kMarkedForgets = R"jinja(
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' -}}
{%- if m.role == 'assistant' -%}
{% generation %}
{%- if loop.last and m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif -%}
{%- if loop.last %}{% for c in m.tool_calls or [] %}{{ '<tool_call>' + c.function.name }}{% endfor %}{% endif -%}
{{- m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ m.content + '<|im_end|>\n' }}
{%- endif -%}
{%- endfor -%}
)jinja";

TEST(ChatTemplate, MarkedTurnsOfWhichAFieldIsDroppedLaterAreLearntOnTheirOwn) {
  EXPECT_EQ(runs_of(kMarkedForgets, R"({"messages": [{"role": "user", "content": "2 + 2"},
    {"role": "assistant", "reasoning_content": "4", "content": "It is 4."}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f",
     "arguments": {}}}]}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}]})"),
            (std::vector<Runs>{
                {"<think>4</think>It is 4.<|im_end|>"}, {"<tool_call>f<|im_end|>"}, {"Hi<|im_end|>"}}));
}

// Fields that no template reads are nothing to look for in other texts.
TEST(ChatTemplate, MarkedTurnsAreFoundInOneRendering) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja", kMarked);
  const ChatRenderer render = renderer_of(
      std::make_shared<const templates::ChatTemplate>(*templates::ChatTemplate::load(folder.path())));
  size_t renderings = 0;
  const ChatRenderer counted = [&](const Json& messages, bool prompt, const Json& extra) {
    ++renderings;
    return render(messages, prompt, extra);
  };
  Json::Array messages;
  for (int turn = 0; turn < 20; ++turn) {
    messages.push_back(Json::Object{{"role", "user"}, {"content", "Hi"}});
    messages.push_back(Json::Object{{"role", "assistant"},
                                    {"content", "<think>a b</think> Hello"},
                                    {"id", fmt::format("turn-{}", turn)}});
  }
  const EncodedRow row =
      RowEncoder(qwen(), counted, {}).encode(Json::Object{{"messages", std::move(messages)}});
  EXPECT_EQ(target_runs(row.examples.at(0)).size(), 20u);
  EXPECT_EQ(renderings, 1u);
}

// Words of a message are known to the byte whatever a template does with them.
TEST(ChatTemplate, AnswersAreFoundBehindEveryKindOfChange) {
  for (const char* content :
       {"m.content", "m.content.strip()", "m.content.split('|')[0]", "m.content[:]",
        "m.content | replace('x', 'y')", "[m.content] | join", "'%s' % m.content", "'{}'.format(m.content)",
        "write(m.content)", "(m.content | list) | join", "'' ~ m.content", "m.content | string | trim"}) {
    const std::string source =
        std::string("{%- macro write(text) %}{{ text }}{% endmacro -%}") +
        "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' }}{{ " + content +
        " }}{{ '<|im_end|>' + "
        "('\n' if loop.last else '<|endoftext|>') }}{%- endfor -%}"
        "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif -%}";
    EXPECT_EQ(runs_of(source, R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "<b>Hello"}, {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "<b>Hello"}]})"),
              (std::vector<Runs>{{"<b>Hello<|im_end|>"}, {"<b>Hello<|im_end|>"}}))
        << content;
  }
}

constexpr std::string_view kCall = R"({"messages": [{"role": "user", "content": "Weather?"},
  {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
    {"name": "weather", "arguments": ARGUMENTS}}]}]})";

std::string with_call(std::string_view body, const std::string& arguments) {
  const std::string source =
      "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
      "{%- if m.tool_calls %}{% for call in m.tool_calls %}{% set f = call.function %}" +
      std::string(body) +
      "{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{%- endfor -%}"
      "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}";
  std::string row(kCall);
  row.replace(row.find("ARGUMENTS"), 9, arguments);
  return target_runs(encode(source, row)).at(0);
}

// Data have arguments as objects or as JSON text, and templates take one of them or both.
TEST(ChatTemplate, ArgumentsOfCallsAreNeverEncodedTwice) {
  const std::string object = R"({"city": "Ulm"})", text = R"("{\"city\":\"Ulm\"}")";
  EXPECT_EQ(with_call("{{ f.arguments | tojson }}", object), R"({"city": "Ulm"}<|im_end|>)");
  EXPECT_EQ(with_call("{{ f.arguments | tojson }}", text), R"({"city": "Ulm"}<|im_end|>)");
  EXPECT_EQ(with_call("{{ 'args ' + f.arguments }}", object), R"(args {"city": "Ulm"}<|im_end|>)");
  EXPECT_EQ(with_call("{{ 'args ' + f.arguments }}", text), R"(args {"city":"Ulm"}<|im_end|>)");
  EXPECT_EQ(with_call("{% for k, v in f.arguments.items() %}{{ k }}={{ v }}{% endfor %}", text),
            "city=Ulm<|im_end|>");
  // One that takes both gets what the row has.
  constexpr std::string_view kBoth =
      "{% if f.arguments is string %}{{ f.arguments }}{% else %}{{ f.arguments | tojson }}{% endif %}";
  EXPECT_EQ(with_call(kBoth, text), R"({"city":"Ulm"}<|im_end|>)");
}

// Calls may have no function around their names, or be in OpenAI's older form.
TEST(ChatTemplate, CallsOfOtherFormsAreWrittenAsWell) {
  const auto runs = [](std::string_view call, std::string_view message) {
    const std::string source = fmt::format(
        "{{%- for m in messages -%}}{{{{ m.role + ':' }}}}{{{{ m.content or '' }}}}{}<|im_end|>{{%- endfor "
        "-%}}"
        "{{%- if add_generation_prompt %}}assistant:{{% endif -%}}",
        call);
    return runs_of(source, fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}},
      {{"role": "assistant", {}}}]}})",
                                       message));
  };
  constexpr std::string_view kNames =
      "{% for c in m.tool_calls or [] %}{{ c.name }}({{ c.arguments | tojson }})"
      "{% endfor %}";
  EXPECT_EQ(runs(kNames, R"("tool_calls": [{"name": "g", "arguments": "x"},
    {"name": "f", "arguments": "{\"a\": 1}"}])"),
            (std::vector<Runs>{{R"(g("x")f({"a": 1})<|im_end|>)"}}));
  EXPECT_EQ(runs("{% if m.function_call %}{{ m.function_call.name }}{% endif %}",
                 R"("function_call": {"name": "f", "arguments": "{}"})"),
            (std::vector<Runs>{{"f<|im_end|>"}}));
}

TEST(ChatTemplate, ARefusalOfCallsInEveryFormIsTheFirst) {
  const std::string error = message_of([] {
    encode(
        "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}{{ raise_exception('no calls of ' + "
        "c.name + (' as text' if c.arguments is string else '')) }}{%- endfor -%}{%- endfor -%}",
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a",
             "tool_calls": [{"name": "look", "arguments": {"a": 1}}]}]})");
  });
  EXPECT_NE(error.find("no calls of look"), std::string::npos) << error;
  EXPECT_EQ(error.find("as text"), std::string::npos) << error;
}

// A renderer that does not say which fields were read is judged by its text.
TEST(ChatTemplate, CallsAreFoundInATextWithoutATrace) {
  int renderings = 0;
  const ChatRenderer render = [&](const Json& messages, bool, const Json&) {
    ++renderings;
    const Json& content = *messages.as_array()[0].find("content");
    return RenderedChat{content.is_null() ? "look" : "nothing"};
  };
  const Json messages = Json::parse(
      R"([{"role": "assistant", "content": "", "tool_calls": [{"name": "look"}]}, 3])", "messages");
  EXPECT_EQ(with_call_forms(render, true)(messages, false, Json::Object{}).text, "nothing");
  EXPECT_GT(renderings, 1);
}

TEST(ChatTemplate, ItsErrorsComeThrough) {
  const std::string error =
      message_of([] { encode(kThinking, R"({"messages": [{"role": "robot", "content": "beep"}]})"); });
  EXPECT_NE(error.find("unexpected role robot"), std::string::npos) << error;
  EXPECT_FALSE(renderer_of(nullptr));
}

// How often a conversation of calls without content is rendered to be written once.
TEST(ChatTemplate, FormsOfCallsAreTriedWhereTheyMatter) {
  const auto renders_of = [](std::string_view source, std::string_view messages) {
    const TemporaryDirectory folder;
    write_file(folder / "chat_template.jinja", source);
    const auto loaded = std::make_shared<const templates::ChatTemplate>(
        std::move(*templates::ChatTemplate::load(folder.path())));
    int renders = 0;
    const ChatRenderer counted = [&](const Json& given, bool asks, const Json& extra) {
      ++renders;
      const templates::Rendered rendered = loaded->render_with_generation(given, asks, extra);
      RenderedChat chat{rendered.text};
      for (const auto& [begin, end, source] : rendered.origins)
        chat.written.push_back({{begin, end}, source});
      chat.unread = rendered.unread;
      chat.nones = rendered.nones;
      return chat;
    };
    with_call_forms(counted, loaded->mentions("tool_calls"))(Json::parse(messages, "row"), false,
                                                             Json::Object());
    return renders;
  };
  constexpr std::string_view kCall = R"([{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls":
    [{"function": {"name": "look", "arguments": {"key": "word"}}}]}])";
  EXPECT_EQ(renders_of("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", kCall), 1);
  // Of the forms of no content one may have the calls written.
  EXPECT_EQ(renders_of("{% for m in messages %}{% if m.content is none %}{{ m.tool_calls | tojson }}"
                       "{% endif %}{% endfor %}",
                       kCall),
            3);
  EXPECT_EQ(renders_of("{% for m in messages %}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}"
                       "{% endfor %}",
                       kCall),
            1);
}

}  // namespace
}  // namespace temper::data
