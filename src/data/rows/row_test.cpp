#include "data/rows/row.h"

#include <gtest/gtest.h>

#include "data/inspect.h"
#include "data/sources/reader.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using Runs = std::vector<std::string>;
constexpr int32_t kEndOfText = 3000, kTurnEnd = 3002;

RowOptions with_eos() {
  RowOptions options;
  options.eos_id = kEndOfText;
  return options;
}

EncodedRow encode_row(std::string_view row, const RowOptions& options = with_eos(),
                      ChatRenderer render = chatml()) {
  return RowEncoder(qwen(), std::move(render), options).encode(Json::parse(row, "row"));
}

Example encode(std::string_view row, const RowOptions& options = with_eos(), ChatRenderer render = chatml()) {
  return encode_row(row, options, std::move(render)).examples.at(0);
}

std::string error_of(std::string_view row, ChatRenderer render = chatml()) {
  return message_of([&] { encode(row, with_eos(), render); });
}

constexpr std::string_view kTwoTurns = R"({"id": 7, "messages": [
  {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"},
  {"role": "assistant", "content": "See you."}]})";

TEST(Row, TextIsAllTargetsAndEndsWithEos) {
  EXPECT_EQ(encode_row(R"({"text": "one two"})").format, RowFormat::kText);
  const Example example = encode(R"({"text": "one two"})");
  EXPECT_EQ(example.ids.back(), kEndOfText);
  EXPECT_EQ(target_runs(example), Runs{"one two<|endoftext|>"});
  EXPECT_EQ(example.num_targets(), example.size() - 1);
  EXPECT_EQ(target_runs(encode(R"({"text": "one two"})", RowOptions())), Runs{"one two"});
  const Example once = encode(R"({"text": "one<|endoftext|>"})");
  EXPECT_EQ(target_runs(once), Runs{"one<|endoftext|>"});
}

// Tokens of a row take many times its bytes; unused fields take none.
TEST(Row, TextsHaveABound) {
  const std::string large(kMostTextBytes, 'a');
  const std::string refusal =
      "the row has 64.00 MiB of text, and a row has at most 64.00 MiB; cut it into several rows";
  EXPECT_EQ(error_of("{\"text\": \"a" + large + "\"}"), refusal);
  EXPECT_EQ(
      error_of(R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ")" +
               large + "\"}]}"),
      refusal);
  EXPECT_EQ(error_of("{\"text\": \"a\", \"score\": \"" + large + "\"}"), "no error");
}

TEST(Row, CompletionIsTheTarget) {
  constexpr std::string_view kSum = R"({"prompt": "1 + 1 =\n", "completion": "two", "text": null})";
  EXPECT_EQ(encode_row(kSum).format, RowFormat::kPromptCompletion);
  const Example example = encode(kSum);
  EXPECT_EQ(target_runs(example), Runs{"two<|endoftext|>"});
  RowOptions all = with_eos();
  all.loss = LossOn::kAll;
  EXPECT_EQ(target_runs(encode(R"({"prompt": "1 + 1 =\n", "completion": "two"})", all)),
            Runs{"1 + 1 =\ntwo<|endoftext|>"});
}

TEST(Row, NoTokenIsHalfPromptAndHalfCompletion) {
  const std::string text = "return the";
  const auto whole = qwen().encode_with_offsets(text);
  size_t longest = 0;
  for (size_t i = 0; i < whole.ids.size(); ++i)
    if (whole.spans[i].end - whole.spans[i].begin > whole.spans[longest].end - whole.spans[longest].begin)
      longest = i;
  const auto span = whole.spans[longest];
  ASSERT_GT(span.end - span.begin, 1u);
  const std::string prompt = text.substr(0, span.begin + 1), completion = text.substr(span.begin + 1);
  const Example example = encode(Json(Json::Object{{"prompt", prompt}, {"completion", completion}}).dump());
  std::vector<int32_t> expected = qwen().encode(prompt);
  const size_t border = expected.size();
  for (const int32_t id : qwen().encode(completion)) expected.push_back(id);
  expected.push_back(kEndOfText);
  EXPECT_EQ(example.ids, expected);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(example.loss_mask[i], i >= border) << i;
}

TEST(Row, AssistantTurnsWithTheirEndAreTargets) {
  for (const ChatRenderer& render : {chatml(), chatml_marked(), chatml_thinking()}) {
    const Example example = encode(kTwoTurns, with_eos(), render);
    Runs expected = {"Hello!<|im_end|>", "See you.<|im_end|>"};
    if (target_runs(example)[1] != expected[1]) expected[1] = "<think>\n\n</think>\n\n" + expected[1];
    EXPECT_EQ(target_runs(example), expected);
    EXPECT_NE(example.ids.back(), kEndOfText);
  }
  RowOptions all;
  all.loss = LossOn::kAll;
  EXPECT_EQ(target_runs(encode(kTwoTurns, all)).size(), 1u);
}

TEST(Row, PromptAndCompletionMayBeMessages) {
  const std::string row = R"({"prompt": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}],
    "completion": [{"role": "assistant", "content": "See you."}]})";
  for (const ChatRenderer& render : {chatml(), chatml_marked()})
    EXPECT_EQ(target_runs(encode(row, with_eos(), render)), Runs{"See you.<|im_end|>"});
}

std::vector<Runs> runs_of(std::string_view row, const ChatRenderer& render,
                          const RowOptions& options = with_eos()) {
  std::vector<Runs> runs;
  for (const Example& example : encode_row(row, options, render).examples)
    runs.push_back(target_runs(example));
  return runs;
}

// The template drops thinking once the next user message follows: each turn is trained as it is written when
// it is the last.
TEST(Row, TurnsWhoseThinkingIsDroppedLaterAreLearntOnTheirOwn) {
  const std::string row = R"({"messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello!"},
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "<think>\nAgain.\n</think>\n\nHello!"}]})";
  const Runs first = {"<think>\nA greeting.\n</think>\n\nHello!<|im_end|>"};
  const Runs second = {"<think>\nAgain.\n</think>\n\nHello!<|im_end|>"};
  EXPECT_EQ(runs_of(row, chatml_thinking()), (std::vector<Runs>{first, second}));
  RowOptions last = with_eos();
  last.loss = LossOn::kLastTurn;
  EXPECT_EQ(runs_of(row, chatml_thinking(), last), std::vector<Runs>{second});
  EXPECT_EQ(runs_of(kTwoTurns, chatml(), last), std::vector<Runs>{{"See you.<|im_end|>"}});
  EXPECT_EQ(runs_of(kTwoTurns, chatml_marked(), last), std::vector<Runs>{{"See you.<|im_end|>"}});
}

TEST(Row, ToolCallsAreTargetsAndAnswersAreNot) {
  const std::string row = R"({"tools": [{"name": "add"}], "messages": [{"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add"}}]},
    {"role": "tool", "content": "2"}, {"role": "assistant", "content": "It is 2."},
    {"role": "user", "content": "Thanks"}, {"role": "assistant", "content": "Bye"}]})";
  const std::string call = "<tool_call>\n{\"name\": \"add\"}\n</tool_call><|im_end|>";
  const Example plain = encode(row);
  EXPECT_EQ(target_runs(plain), (Runs{call, "It is 2.<|im_end|>", "Bye<|im_end|>"}));
  EXPECT_NE(qwen().decode(plain.ids).find("tools: [{\"name\": \"add\"}]"), std::string::npos);
  // Both turns of the first exchange lost the template's empty thinking, but no word of their own.
  EXPECT_EQ(target_runs(encode(row, with_eos(), chatml_thinking())),
            (Runs{call, "It is 2.<|im_end|>", "<think>\n\n</think>\n\nBye<|im_end|>"}));
}

TEST(Row, WhiteSpaceInsideATurnIsATarget) {
  const std::string row = R"({"messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "<|endoftext|>\n a \n"}]})";
  EXPECT_EQ(target_runs(encode(row)), Runs{"<|endoftext|>\n a \n<|im_end|>"});
}

TEST(Row, DecomposedCharactersKeepTheirMask) {
  const std::string row =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"e\xCC\x81\"},"
      "{\"role\": \"assistant\", \"content\": \"e\xCC\x81t\xC3\xA9 e\xCC\x81\"}]}";
  EXPECT_EQ(target_runs(encode(row)), Runs{"\xC3\xA9t\xC3\xA9 \xC3\xA9<|im_end|>"});
}

// Writes each message below its role, the last of them with another end than the rest.
RenderedChat render_odd_ends(const Json& chat, bool prompt, const Json&) {
  const Json::Array& messages = chat.as_array();
  RenderedChat out;
  for (size_t i = 0; i < messages.size(); ++i) {
    out.text += messages[i].at("role").as_string() + ":\n";
    const std::string& content = messages[i].at("content").as_string();
    out.written.push_back({{out.text.size(), out.text.size() + content.size()}, {i}});
    out.text += content + (i + 1 == messages.size() ? "<|im_end|>\n" : "<|endoftext|>\n");
  }
  if (prompt) out.text += "assistant:\n";
  return out;
}

TEST(Row, TurnsWithAnotherEndAreLearntOnTheirOwn) {
  const std::string same = R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "a"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(runs_of(same, render_odd_ends), (std::vector<Runs>{{"a<|im_end|>"}, {"a<|im_end|>"}}));
}

// Of a generation prompt that the template does not write in front of answers, what both share is the prompt.
TEST(Row, AnswersBeginBehindWhatTheyShareWithTheGenerationPrompt) {
  const auto thinks_first = [](const Json& messages, bool prompt, const Json& extra) {
    RenderedChat out = chatml()(messages, prompt, extra);
    if (prompt) out.text += "<think>\n";
    return out;
  };
  EXPECT_EQ(runs_of(kTwoTurns, thinks_first),
            (std::vector<Runs>{{"Hello!<|im_end|>", "See you.<|im_end|>"}}));
}

TEST(Row, RefusesWhatItCannotTellApart) {
  const auto unknown_words = [](const Json& messages, bool prompt, const Json& extra) {
    RenderedChat out = chatml()(messages, prompt, extra);
    if (prompt) out.text += "<think>\n";
    out.written.clear();
    return out;
  };
  const std::string error = error_of(kTwoTurns, unknown_words);
  EXPECT_TRUE(error.starts_with("messages[4]: the assistant turn has no word of its own")) << error;
  EXPECT_NE(error.find("{% generation %}"), std::string::npos) << error;
}

TEST(Row, EmptyAnswersAreLeftOut) {
  const std::string one =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " \n"},
    {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]})";
  const EncodedRow kept = encode_row(one);
  EXPECT_EQ(target_runs(kept.examples.at(0)), Runs{"c<|im_end|>"});
  EXPECT_EQ(kept.empty_turns, 1);
  RowOptions learn = with_eos(), all = with_eos();
  learn.on_empty_answer = OnEmptyAnswer::kLearn;
  all.loss = LossOn::kAll;
  EXPECT_EQ(target_runs(encode(one, learn)).size(), 2u);
  EXPECT_EQ(encode_row(one, all).status, RowStatus::kKept);
  for (
      const char* row :
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]})",
       R"({"prompt": "a", "completion": " "})", R"({"instruction": "a", "output": ""})", R"({"text": ""})",
       R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": ""}]})"}) {
    EXPECT_EQ(encode_row(row).status, RowStatus::kEmptyAnswer) << row;
    EXPECT_EQ(encode_row(row, all).status, RowStatus::kEmptyAnswer) << row;
    EXPECT_NE(encode_row(row, learn).status, RowStatus::kEmptyAnswer) << row;
  }
  // A weight is read as everywhere else.
  EXPECT_EQ(error_of(R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "", "weight": 0.5}]})"),
            "messages[1].weight is 0.5, expected 0 or 1");
  // These say something.
  for (
      const char* row :
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "reasoning": "b"}]})",
       R"({"messages": [{"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}]})",
       R"({"messages": [{"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}}]})"})
    EXPECT_EQ(encode_row(row).status, RowStatus::kKept) << row;
}

// OpenAI's older form, whose content is null.
TEST(Row, AFunctionCallIsACall) {
  EXPECT_EQ(target_runs(encode(R"({"messages": [{"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": null, "function_call": {"name": "add"}}]})")),
            Runs{"<tool_call>\n{\"name\": \"add\"}\n</tool_call><|im_end|>"});
  EXPECT_EQ(error_of(R"({"messages": [{"role": "assistant", "content": "", "function_call": "auto"}]})"),
            "messages[0].function_call is \"auto\", expected a call, {\"name\": …, \"arguments\": …}");
}

TEST(Row, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([1])", "a row must be an object, found an array"},
      {R"({"a": 1, "text": null})",
       "a row has no field that holds its text (fields: a, text (null)); expected one of: messages; "
       "conversations; "
       "instruction and output; question and answer; prompt and completion; text; text and label; chosen and "
       "rejected; prompt; input_ids (a run renames others with data.train[].columns)"},
      {R"({"prompt": "b"})", "the row has a prompt and no answer to learn; expected the field completion"},
      {R"({"text": 3})", "text must be a string, found an integer"},
      {R"({"prompt": 3, "completion": "a"})",
       "prompt must be a string or a list of messages, found an integer"},
      {R"({"prompt": "a", "completion": []})", "completion must be a string, found an array"},
      {R"({"messages": "a"})", "messages is a text, expected a list of messages, or one as JSON text"},
      {R"({"messages": []})", "messages is empty, expected at least one message"},
      {R"({"messages": [1]})", "messages[0] must be an object, found an integer"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role is missing"},
      {R"({"messages": [{"role": 1, "content": "a"}]})",
       "messages[0].role must be a string, found an integer"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [1]}]})",
       "messages[1].content[0] must be an object with type and text, found an integer"},
      {R"({"messages": [{"role": "assistant"}]})",
       "messages[0].content is missing, expected a string (or tool_calls)"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "robot", "content": "beep"}]})",
       "messages[1].role is 'robot', which the chat template does not write"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": {}})",
       "tools must be an array, found an object"},
  };
  for (const auto& [row, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"({"text": "a", "prompt": "b"})",
            "a row has the fields of more than one format (fields: text, prompt);"},
           {R"({"completion": "b"})",
            "prompt is missing although completion is present (fields: completion); expected"},
           {R"({"instruction": "b"})",
            "output is missing although instruction is present (fields: instruction); expected"}})
    EXPECT_TRUE(error_of(row).starts_with(expected)) << error_of(row);
  for (const auto& [row, expected] : cases) EXPECT_EQ(error_of(row), expected) << row;
  EXPECT_EQ(error_of(kTwoTurns, nullptr), "the row is a conversation, but the model has no chat template");
}

TEST(Row, LongRowsAreCutSplitDroppedOrErrors) {
  RowOptions options = with_eos();
  options.max_length = 4;
  const std::string row = R"({"text": "1 2 3 4 5 6"})";
  const auto encode_with = [&](Overflow overflow, const std::string& text) {
    options.overflow = overflow;
    return encode_row(text, options);
  };
  const Example whole = encode(row);
  const EncodedRow cut = encode_with(Overflow::kTruncate, row);
  EXPECT_EQ(cut.status, RowStatus::kKept);
  EXPECT_EQ(cut.examples.at(0).size(), 4);
  EXPECT_EQ(cut.examples[0].loss_mask.size(), 4u);
  EXPECT_EQ(cut.full_length, whole.size());
  EXPECT_EQ(cut.tokens_cut, whole.size() - 4);
  EXPECT_EQ(encode_with(Overflow::kDrop, row).status, RowStatus::kTooLong);
  EXPECT_NE(message_of([&] { encode_with(Overflow::kError, row); }).find("max_length is 4"),
            std::string::npos);
  const EncodedRow split = encode_with(Overflow::kSplit, row);
  std::vector<int32_t> joined;
  for (const Example& piece : split.examples) {
    EXPECT_LE(piece.size(), 4);
    EXPECT_GT(piece.num_targets(), 0);
    joined.insert(joined.end(), piece.ids.begin(), piece.ids.end());
  }
  EXPECT_EQ(joined, whole.ids);
  EXPECT_EQ(split.tokens_cut, 0);
  // Pieces that hold no target teach nothing.
  const EncodedRow late =
      encode_with(Overflow::kSplit, R"({"prompt": "1 2 3 4 5 6 7 8\n", "completion": "x y z"})");
  EXPECT_EQ(late.status, RowStatus::kKept);
  EXPECT_GT(late.tokens_cut, 0);
  EXPECT_TRUE(target_runs(late.examples.back()).back().ends_with("z<|endoftext|>"));
}

// The vocabulary has tokens for the most common bytes only.
TEST(Reader, CountsRowsThatTheTokenizerHasNotAllBytesOf) {
  const TemporaryDirectory folder;
  const Source source({write_lines(folder, "rows.jsonl",
                                   {R"({"text": "all of it"})", R"({"text": "a \ud800\udc00 b \u3ad0"})"})});
  const Tokenizer tokenizer = Tokenizer::load(TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_bytes_dropped");
  const RowEncoder encoder(tokenizer, nullptr, {});
  RowCounts counts;
  for (int64_t i = 0; i < source.size(); ++i) counts.add(read_row(source, encoder, i), OnBadRow::kSkip);
  EXPECT_EQ(counts.changed.incomplete, 1);
  EXPECT_EQ(counts.changed.bytes_dropped, 2);
  EXPECT_EQ(counts.describe(),
            "kept 2 of 2 rows (1 without 2 of their bytes, for which the tokenizer has no token)");
  EXPECT_EQ(RowCounts::from_json(counts.to_json()).to_json(), counts.to_json());
  Json::Object earlier = counts.to_json().as_object();
  std::erase_if(earlier, [](const auto& entry) { return entry.first == "incomplete"; });
  EXPECT_EQ(RowCounts::from_json(earlier).changed.incomplete, 0);
  EXPECT_TRUE(describe_row(read_row(source, encoder, 1).row, tokenizer, false)
                  .ends_with("; 2 bytes left out, as the tokenizer has no token for them\n"));
}

TEST(Reader, CountsWhatBecomesOfRows) {
  const TemporaryDirectory folder;
  const std::string path =
      write_lines(folder, "rows.jsonl",
                  {R"({"text": "a b"})", R"({"text": "1 2 3 4 5 6 7 8 9 10 11 12"})",
                   R"({"prompt": "1 2 3 4 5 6 7 8 9 10", "completion": "x"})", "", R"({"no": "text"})", "{"});
  const Source source({path});
  RowOptions options = with_eos();
  options.max_length = 8;
  const RowEncoder encoder(qwen(), chatml(), options);
  RowCounts counts;
  for (int64_t i = 0; i < source.size(); ++i) counts.add(read_row(source, encoder, i), OnBadRow::kSkip);
  EXPECT_EQ(counts.describe(),
            fmt::format(
                "kept 2 of 5 rows (1 truncated, {} tokens cut off); dropped 1 without a target token, 2 bad",
                encode(R"({"text": "1 2 3 4 5 6 7 8 9 10 11 12"})").size() - 8));
  EXPECT_EQ(RowCounts::from_json(counts.to_json()).to_json(), counts.to_json());
  const std::string error = message_of([&] { counts.add(read_row(source, encoder, 3), OnBadRow::kStop); });
  EXPECT_TRUE(error.starts_with("[" + path + ":5] a row has no field that holds its text")) << error;
}

}  // namespace
}  // namespace temper::data
