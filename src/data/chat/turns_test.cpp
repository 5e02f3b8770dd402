#include "data/chat/turns.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/chat/chat_template.h"
#include "data/chat/opening_turn.h"
#include "data/rows/row.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using TextRuns = std::vector<std::vector<std::string>>;

RowEncoder encoder_of(std::string_view source, LossOn loss = LossOn::kAllTurns) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja", source);
  RowOptions options;
  options.loss = loss;
  return RowEncoder(qwen(),
                    renderer_of(std::make_shared<const templates::ChatTemplate>(
                        *templates::ChatTemplate::load(folder.path()))),
                    options);
}

// What a row is trained on, text by text, or the error.
TextRuns trained_runs(std::string_view source, std::string_view row, LossOn loss = LossOn::kAllTurns) {
  TextRuns runs;
  const std::string error = message_of([&] {
    for (const Example& example : encoder_of(source, loss).encode(Json::parse(row, "row")).examples)
      runs.push_back(target_runs(example));
  });
  return error == "no error" ? runs : TextRuns{{error}};
}

constexpr std::string_view kAsks =
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}";

// A template that writes each message's role, and this behind it.
std::string each_message(std::string_view body, std::string_view before = "",
                         std::string_view behind = kAsks) {
  return fmt::format(
      "{}{{%- for m in messages -%}}{{{{- '<|im_start|>' + m.role + '\n' -}}}}{}{{%- endfor -%}}{}", before,
      body, behind);
}

constexpr std::string_view kTwoAnswers = R"({"messages": [{"role": "user", "content": "q"},
  {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";

// Before its first message this template asks for nothing: the turn begins with its words.
TEST(Turns, ATurnThatNothingAsksForBeginsWithItsWords) {
  const std::string source =
      "{%- if not messages %}{{ raise_exception('no messages') }}{% endif -%}{%- for m in messages -%}"
      "{{- m.role + ':\n' + m.content + ('<|im_end|>' if loop.last or not m.name else '<|endoftext|>') -}}"
      "{%- endfor -%}";
  const std::string rest = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(trained_runs(source, R"({"messages": [{"role": "assistant", "content": "a"}, )" + rest),
            (TextRuns{{"a<|im_end|>", "assistant:\nb<|im_end|>"}}));
  // It has another end where others follow: then it is trained on a text of its own.
  EXPECT_EQ(
      trained_runs(source, R"({"messages": [{"role": "assistant", "content": "a", "name": "n"}, )" + rest),
      (TextRuns{{"a<|im_end|>"}, {"assistant:\nb<|im_end|>"}}));
}

TEST(Turns, ARefusedPromptOfALaterTurnIsAnError) {
  const std::string source = each_message(
      "{{- m.content + '<|im_end|>\n' -}}",
      "{%- if add_generation_prompt and messages[-1].role == 'system' %}{{ raise_exception('no question') "
      "}}{% endif -%}");
  const TextRuns runs = trained_runs(source, R"({"messages": [{"role": "user", "content": "q"},
    {"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}]})");
  EXPECT_NE(runs.at(0).at(0).find("no question"), std::string::npos) << runs[0][0];
}

// What stands before a turn changes with each message behind it: no longer text is the one it was asked in.
TEST(Turns, OfAHistoryThatIsRewrittenEachIsLearntAlone) {
  const TextRuns alone = {{"a<|im_end|>"}, {"b<|im_end|>"}};
  for (const char* before :
       {"{{- messages | length ~ ' messages\n' -}}", "{{- 'x' * (messages | length) + ' messages\n' -}}"})
    EXPECT_EQ(
        trained_runs(each_message("{{- m.content + '<|im_end|>' -}}{{- '\n' if not loop.last -}}", before),
                     kTwoAnswers),
        alone)
        << before;
}

// In a text that ends a turn otherwise once it is asked to continue it, the next begins before its end.
TEST(Turns, ThatOverlapAreLearntApart) {
  const std::string source =
      "{%- for m in messages -%}{{- m.role + ': ' + m.content -}}"
      "{%- if not (loop.last and add_generation_prompt and m.role == 'assistant') -%}<|im_end|>{%- endif -%}"
      "{%- endfor -%}{%- if add_generation_prompt and messages[-1].role == 'user' %}{{ 'assistant: ' }}{% "
      "endif -%}";
  EXPECT_EQ(trained_runs(source, R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
            (TextRuns{{"a<|im_end|>"}, {"<|im_end|>assistant: b<|im_end|>"}}));
}

// The token that follows a turn without an end is looked for in the text of a longer conversation.
TEST(Turns, WithoutAnEndMayHaveNoneInALongerText) {
  const std::string dropped = each_message("{{- m.content if loop.last or m.role == 'user' -}}"),
                    silent = each_message("{{- m.content if m.role == 'assistant' -}}"),
                    other_end = each_message("{{- m.content + ('\n' if loop.last else ' ') -}}"),
                    refuses = each_message("{{- m.content -}}",
                                           "{%- if messages | length > 2 %}{{ raise_exception('too many') }}"
                                           "{% endif -%}");
  for (const std::string& source : {dropped, silent, other_end, refuses}) {
    const TextRuns runs = trained_runs(source, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}]})");
    EXPECT_EQ(runs, (source == other_end ? TextRuns{{"a\n"}} : TextRuns{{"a"}})) << source;
  }
}

TEST(Turns, AConversationWithoutAnAnswerHasNoTarget) {
  const std::string source = each_message("{{- m.content + '<|im_end|>\n' -}}");
  const Json row = Json::parse(R"({"messages": [{"role": "user", "content": "q"}]})", "row");
  EXPECT_EQ(encoder_of(source).encode(row).status, RowStatus::kNoTargets);
}

// Every token is trained on, whether or not the text begins with the generation prompt.
TEST(Turns, WithLossAllTheTextIsOneRun) {
  const std::string source = each_message("{{- m.content + '<|im_end|>\n' -}}", "",
                                          "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>'"
                                          " }}{% endif -%}");
  EXPECT_EQ(trained_runs(source, kTwoAnswers, LossOn::kAll),
            (TextRuns{{"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\n"
                       "r<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"}}));
}

// Generation prompts with an open <think>, and answers in which the template writes it otherwise.
TEST(Thinking, IsAddedWhereTheTemplateLeavesItOut) {
  const auto runs = [](std::string_view written, std::string_view message, std::string_view before = "") {
    const std::string source =
        each_message(written, before,
                     "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif -%}");
    return trained_runs(source, fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}},
      {{"role": "assistant", {}}}]}})",
                                            message));
  };
  constexpr std::string_view kWhy = R"("content": "a", "reasoning_content": "why")",
                             kPlain = R"("content": "a")", kEmpty = R"("content": "<think> </think>a")";
  const std::string answer = "{{- m.content.split('</think>')[-1] + '<|im_end|>' -}}",
                    no_thought = "{{- '<think></think>\n<answer>' if m.role == 'assistant' -}}" + answer;
  const TextRuns added = {{"why\n</think>\n\na<|im_end|>"}};
  EXPECT_EQ(runs(answer, kWhy), added);
  EXPECT_EQ(runs(answer, kPlain), TextRuns{{"a<|im_end|>"}});
  EXPECT_EQ(runs(answer, kEmpty), TextRuns{{"a<|im_end|>"}});
  // Thinking that holds nothing gives way to the row's; what else opens the answer stays.
  EXPECT_EQ(runs(no_thought, kWhy), (TextRuns{{"why\n</think>\n\n<answer>a<|im_end|>"}}));
  // It stands elsewhere in the text, or the text is not the one that was asked for.
  EXPECT_EQ(runs("{{- m.content + (m.reasoning_content or '') + '<|im_end|>' -}}", kWhy),
            (TextRuns{{"awhy<|im_end|>"}}));
  EXPECT_EQ(runs(answer, kWhy, "{{- messages | length -}}"), TextRuns{{"a<|im_end|>"}});
}

constexpr std::string_view
    kMarksOne =
        "{%- if m.role == 'assistant' -%}{% generation %}{{- m.content + '<|im_end|>' -}}{% endgeneration %}"
        "{%- else -%}{{- m.content + '<|im_end|>' -}}{%- endif -%}{{- '\n' -}}",
    kMarksTwo =
        "{%- if m.role == 'assistant' -%}{% generation %}{{- m.content -}}{% endgeneration %}{{- '|' -}}"
        "{% generation %}<|im_end|>{% endgeneration %}{%- else -%}{{- m.content + '<|im_end|>' -}}{%- endif "
        "-%}",
    kMarksLast =
        "{%- if m.role == 'assistant' and loop.last -%}{% generation %}{{- m.content + '<|im_end|>' -}}"
        "{% endgeneration %}{%- else -%}{{- m.content + '<|im_end|>' -}}{%- endif -%}{{- '\n' -}}";

TEST(MarkedTurns, OfWhichThereAreMoreOrFewerBlocksAreAllOfThem) {
  EXPECT_EQ(trained_runs(each_message(kMarksTwo), kTwoAnswers),
            (TextRuns{{"a", "<|im_end|>", "b", "<|im_end|>"}}));
  EXPECT_EQ(trained_runs(each_message(kMarksLast), kTwoAnswers), (TextRuns{{"b<|im_end|>"}}));
  // Behind a prompt those that begin there.
  constexpr std::string_view kPair = R"({"prompt": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}],
    "completion": [{"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(trained_runs(each_message(kMarksTwo), kPair), (TextRuns{{"b", "<|im_end|>"}}));
  EXPECT_EQ(trained_runs(each_message(kMarksTwo, "{{- messages | length -}}"), kPair),
            TextRuns{{"the template writes the prompt's messages differently once the completion follows, so "
                      "their tokens cannot be distinguished; give the row as messages"}});
  std::string weighted(kTwoAnswers);
  weighted.replace(weighted.find(R"("a")"), 3, R"("a", "weight": 0)");
  for (const auto& [source, blocks] : {std::pair{kMarksTwo, 4}, {kMarksLast, 1}})
    EXPECT_EQ(trained_runs(each_message(source), weighted),
              TextRuns{{fmt::format("a message has a weight of 0, but the template marks {} answers of 2 "
                                    "assistant turns",
                                    blocks)}});
}

TEST(MarkedTurns, OfNoWeightLeaveNoText) {
  const std::string first = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a")",
                    last = R"({"role": "user", "content": "r"}, {"role": "assistant", "content": "b")";
  const auto row = [&](const std::string& of_first, const std::string& of_last) {
    return R"({"messages": [)" + first + of_first + "}, " + last + of_last + "}]}";
  };
  const std::string unlearnt = R"(, "weight": 0)", thinks = R"(, "reasoning_content": "why")";
  EXPECT_EQ(trained_runs(each_message(kMarksOne), row(unlearnt, unlearnt)), TextRuns());
  // Thinking that only the last turn has makes the first a text of its own, and there is no other.
  const std::string forgets =
      "{%- if m.role == 'assistant' -%}{% generation %}{{- (m.reasoning_content or '') if loop.last -}}"
      "{{- m.content + '<|im_end|>' -}}{% endgeneration %}{%- else -%}{{- m.content + '<|im_end|>' -}}"
      "{%- endif -%}";
  EXPECT_EQ(trained_runs(each_message(forgets), row(thinks, unlearnt)), (TextRuns{{"whya<|im_end|>"}}));
  // Thinking or calls that are written nowhere are in no other text either.
  const std::string calls = R"(, "tool_calls": [{"function": {"name": "f", "arguments": {}}}])";
  for (const std::string& field : {thinks, calls})
    EXPECT_EQ(trained_runs(each_message(kMarksOne), row(field, "")),
              (TextRuns{{"a<|im_end|>", "b<|im_end|>"}}));
}

// An answer that is all thinking, which the template does not write, has no word in any text.
TEST(MarkedTurns, MayHaveNoWords) {
  std::string source(kMarksOne);
  source.replace(source.find("m.content"), 9, "m.content.split('</think>')[-1]");
  std::string row(kTwoAnswers);
  row.replace(row.find(R"("a")"), 3, R"("<think>why</think>")");
  EXPECT_EQ(trained_runs(each_message(source), row), (TextRuns{{"<|im_end|>", "b<|im_end|>"}}));
}

RenderedChat plain_text(const Json& messages, bool, const Json&) {
  RenderedChat out;
  for (const Json& message : messages.as_array())
    out.text += message.at("role").as_string() + ": " + message.at("content").as_string() + "\n";
  return out;
}

// Conversations without a user, which a template may refuse to continue.
TEST(OpeningTurns, AreAskedForAsBehindAUser) {
  const Json none = Json::Array{}, system = Json::Array{Json::Object{{"role", "system"}, {"content", "s"}}};
  const auto asked = [](const ChatRenderer& render, const Json& messages) {
    std::string text;
    const std::string error =
        message_of([&] { text = with_opening_turns(render)(messages, true, Json::Object{}).text; });
    return error == "no error" ? text : error;
  };
  // Refuses to ask without a user; `write` writes the rest.
  const auto refusing = [](const ChatRenderer& write) {
    return [write](const Json& messages, bool asks, const Json& extra) {
      const bool user = !messages.as_array().empty() && messages.as_array().back().at("role") == Json("user");
      if (asks && !user) fail("no user");
      return write(messages, asks, extra);
    };
  };
  const ChatRenderer asks_behind = [](const Json& messages, bool asks, const Json& extra) {
    RenderedChat out = plain_text(messages, false, extra);
    if (asks) out.text += "assistant: ";
    return out;
  };
  EXPECT_EQ(asked(refusing(asks_behind), system), "system: s\nassistant: ");
  EXPECT_EQ(asked(refusing(asks_behind), none), "assistant: ");
  const ChatRenderer asks_before = [](const Json& messages, bool asks, const Json& extra) {
    RenderedChat out = plain_text(messages, false, extra);
    if (asks) out.text = "answer!\n" + out.text;
    return out;
  };
  const ChatRenderer asks_otherwise = [](const Json& messages, bool asks, const Json& extra) {
    RenderedChat out = plain_text(messages, false, extra);
    if (asks) out.text += "assistant: <think>";
    return out;
  };
  const ChatRenderer says_nothing = [](const Json&, bool asks, const Json&) {
    return RenderedChat{asks ? "assistant: " : ""};
  };
  const ChatRenderer writes_none = [](const Json& messages, bool asks, const Json& extra) -> RenderedChat {
    if (messages.as_array().back().at("role") == Json("assistant")) fail("no answers");
    return plain_text(messages, asks, extra);
  };
  for (const ChatRenderer& render :
       {ChatRenderer(plain_text), asks_before, asks_otherwise, says_nothing, writes_none})
    EXPECT_EQ(asked(refusing(render), system), "no user");
  // A template that refuses nothing says itself what it writes for no message at all.
  EXPECT_EQ(asked(asks_before, none), "answer!\n");
  EXPECT_EQ(asked(asks_before, system), "answer!\nsystem: s\n");
}

}  // namespace
}  // namespace temper::data
