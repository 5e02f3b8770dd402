#include "data/inspect.h"

#include <gtest/gtest.h>

#include "data/sources/test_support.h"

namespace temper::data {
namespace {

TEST(Inspect, ShowsTokensAndTheirMask) {
  const RowEncoder encoder(qwen(), chatml(), {});
  const Json row = Json::parse(R"({"messages": [{"role": "user", "content": "a\tb"},
    {"role": "assistant", "content": "1"}]})",
                               "row");
  const EncodedRow example = encoder.encode(row);
  const std::string plain = describe_row(example, qwen(), false);
  EXPECT_NE(plain.find("[[1|<|im_end|>|]]\\n|\n"), std::string::npos) << plain;
  EXPECT_NE(plain.find("\\t"), std::string::npos) << plain;
  EXPECT_NE(plain.find("messages: "), std::string::npos) << plain;
  EXPECT_NE(plain.find(" 2 targets\n"), std::string::npos) << plain;
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  const std::string colored = describe_row(example, qwen(), true);
  EXPECT_NE(colored.find("\x1b[32m1|<|im_end|>|\x1b[0m"), std::string::npos) << colored;
}

TEST(Inspect, NamesTheExamplesOfARow) {
  RowOptions options;
  options.goal = Goal::kAny;
  const RowEncoder encoder(qwen(), chatml(), options);
  const Json pair = Json::parse(R"({"prompt": "1 + 1 =", "chosen": " 2", "rejected": " 3"})", "row");
  const std::string text = describe_row(encoder.encode(pair), qwen(), false);
  EXPECT_EQ(text.find("chosen:\n1"), 0u) << text;
  EXPECT_NE(text.find("\nrejected:\n1"), std::string::npos) << text;
  EXPECT_NE(text.find("preference: "), std::string::npos) << text;
  const Json prompt = Json::parse(R"({"prompt": "1 + 1 =", "answer": 2})", "row");
  EXPECT_NE(describe_row(encoder.encode(prompt), qwen(), false).find("prompt_only: "), std::string::npos);
}

// What the end of the line says of a row that is dropped, cut or not read in full.
TEST(Inspect, SaysWhyARowIsDropped) {
  const auto about = [](std::string_view row, RowOptions options) {
    options.eos_id = 3000;
    const std::string text =
        describe_row(RowEncoder(qwen(), nullptr, options).encode(Json::parse(row, "row")), qwen(), false);
    return text.substr(text.rfind('\n', text.size() - 2) + 1);
  };
  RowOptions cut, drop, split;
  cut.max_length = drop.max_length = split.max_length = 4;
  drop.overflow = Overflow::kDrop;
  split.overflow = Overflow::kSplit;
  const std::string_view text = R"({"text": "1 2 3"})";
  EXPECT_EQ(about(text, {}), "text: 6 tokens, 5 targets\n");
  EXPECT_EQ(about(text, cut), "text: 4 tokens, 3 targets, 2 of 6 cut off\n");
  EXPECT_EQ(about(text, drop),
            "text: 0 tokens, 0 targets; dropped because it has 6 tokens, more than data.max_length\n");
  EXPECT_EQ(about(R"({"prompt": "1 2 3 4", "completion": "5"})", cut),
            "prompt_completion: 0 tokens, 0 targets; dropped, none of its 9 tokens is a target\n");
  EXPECT_EQ(about(R"({"prompt": "1", "completion": ""})", {}),
            "prompt_completion: 0 tokens, 0 targets; dropped, its answer is empty (data.on_empty_answer: "
            "learn keeps it)\n");
  EXPECT_EQ(about(R"({"text": "1", "id": 3, "url": "x"})", {}),
            "text: 2 tokens, 1 targets; unused fields: id, url\n");
  const EncodedRow pieces =
      RowEncoder(qwen(), nullptr, split).encode(Json::parse(R"({"text": "1 2 3 4"})", "row"));
  EXPECT_EQ(describe_row(pieces, qwen(), false),
            "piece 1 of 2:\n[[1| |2| |]]\npiece 2 of 2:\n[[3| |4|]]\ntext: 7 tokens, 5 targets\n");
}

// Ids that the model has and the tokenizer has not.
TEST(Inspect, TokensWithoutATextAreShownByTheirIds) {
  RowOptions options;
  options.vocab_size = qwen().vocab_size() + 9;
  const int64_t id = qwen().vocab_size() + 5;
  const EncodedRow row = RowEncoder(qwen(), chatml(), options)
                             .encode(Json::parse(fmt::format(R"({{"input_ids": [{}]}})", id), "row"));
  EXPECT_EQ(row.status, RowStatus::kNoTargets);
  EncodedRow pair = RowEncoder(qwen(), chatml(), options)
                        .encode(Json::parse(fmt::format(R"({{"input_ids": [{}, {}]}})", id, id), "row"));
  EXPECT_TRUE(describe_row(pair, qwen(), false).starts_with(fmt::format("[[<id {}>|<id {}>|]]\n", id, id)))
      << describe_row(pair, qwen(), false);
}

TEST(Inspect, TellsWhichFieldsNothingReads) {
  const TemporaryDirectory folder;
  const std::string rows = write_lines(
      folder, "rows.jsonl",
      {R"({"id": 1, "tags": [], "tools": [{"name": "f"}], "messages": [{"role": "user", "content": "a", "name": "Ada"}, {"role": "assistant", "content": "b", "reasoning": "c", "score": 1, "tool_call_id": null}]})",
       R"({"id": 2, "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "html": "c"}]})",
       R"({"question": "a", "answer": "b", "topic": "c", "system_prompt": "d"})",
       R"({"prompt": "a", "answer": 1})", R"({"text": "a b", "id": 3})"});
  RowOptions options;
  options.template_reads = [](std::string_view name) { return name == "thinking" || name == "score"; };
  const Mixture mixture = mixture_of({rows}, options);
  const std::string expected = "conversations[].html (1), id (3), messages[].name (1), tools (1), topic (1)";
  LoaderOptions loading;
  loading.max_length = 64;
  const DatasetSummary summary = summarize(mixture, loading);
  EXPECT_EQ(summary.counts().describe_unused(), expected);
  EXPECT_NE(describe(summary).find("unused fields, and the rows with them: " + expected + "\n"),
            std::string::npos);
  EXPECT_EQ(describe_unused(mixture), "unused fields (in the first 64 rows): rows: " + expected);
  EXPECT_EQ(RowCounts::from_json(summary.counts().to_json()).unused, summary.counts().unused);
}

TEST(Inspect, SumsUpADataSet) {
  const TemporaryDirectory folder;
  std::vector<std::string> lines = {R"({"prompt": "a", "completion": "b"})", R"({"none": 1})"};
  for (int i = 1; i <= 10; ++i)
    lines.push_back(Json(Json::Object{{"text", std::string(static_cast<size_t>(i), '1')}}).dump());
  RowOptions options;
  options.max_length = 8;
  std::vector<Member> members = mixture_of({write_lines(folder, "rows.jsonl", lines)}, options).members();
  members.push_back(mixture_of({write_lines(folder, "more.jsonl", {lines[4]})}, options).members()[0]);
  members[1].name = "more";
  const Mixture mixture(std::move(members));
  LoaderOptions loading;
  loading.max_length = 8;
  const DatasetSummary summary = summarize(mixture, loading);
  ASSERT_EQ(summary.sources.size(), 2u);
  EXPECT_EQ(summary.sources[0].formats, (std::array<int64_t, kNumFormats>{0, 0, 0, 0, 1, 10}));
  EXPECT_EQ(summary.sources[1].counts.kept, 1);
  EXPECT_EQ(summary.percentiles[4], 10);
  EXPECT_EQ(summary.counts().changed.truncated, 2);
  EXPECT_EQ(summary.lengths, (std::vector<int64_t>{0, 1, 4, 4, 3}));  // [1, 2), [2, 4), [4, 8), [8, 16)
  ASSERT_EQ(summary.longest.size(), 10u);
  EXPECT_EQ(summary.longest[0].tokens, 10);
  EXPECT_TRUE(summary.longest[0].place.ends_with("rows.jsonl:12"));
  // One is bad, and one has one token, which predicts nothing.
  EXPECT_EQ(summary.num_dropped, 2);
  EXPECT_EQ(summary.packed_tokens, summary.counts().tokens);
  EXPECT_GT(summary.filled(), 0.8);
  const std::string text = describe(summary);
  for (const char* part : {"prompt_completion, ", "more: kept 1 of 1 rows", "longest 10", "rows.jsonl:12",
                           "rows.jsonl:2] a row has no", "  1: no target among its N tokens\n",
                           "no target among its 1 tokens", "% filled"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(describe_unused(mixture), "");
  EXPECT_EQ(describe_formats(mixture),
            "rows: 12 rows of prompt_completion and text and unknown fields; more: 1 rows of text");
}

TEST(Inspect, SumsUpRowsThatAreAllBad) {
  const TemporaryDirectory folder;
  const Mixture mixture = mixture_of({write_lines(folder, "rows.jsonl", {"{}", "{}"})}, {});
  LoaderOptions loading;
  loading.max_length = 8;
  const DatasetSummary summary = summarize(mixture, loading);
  EXPECT_EQ(summary.percentiles, (std::array<int64_t, 5>{}));
  EXPECT_EQ(summary.filled(), 0);
  const std::string text = describe(summary), place = folder / "rows.jsonl";
  EXPECT_TRUE(
      text.starts_with("kept 0 of 2 rows; dropped 2 bad\n0 tokens, 0 targets (0.0 %)\nsources:\n"
                       "  rows: kept 0 of 2 rows; dropped 2 bad, 0 tokens (0.0 %), 0 targets; "
                       "no good rows\n"))
      << text;
  EXPECT_EQ(text.find("an epoch"), std::string::npos) << text;
  EXPECT_EQ(text.find("longest rows"), std::string::npos) << text;
  EXPECT_NE(
      text.find("dropped rows by reason:\n  2: a row has no field that holds its text (fields: none)\n"),
      std::string::npos)
      << text;
}

// Of many rows the longest, the first that are dropped, and as many reasons as can be read.
TEST(Inspect, SumsUpRowsThatAreDroppedForManyReasons) {
  const TemporaryDirectory folder;
  std::vector<std::string> lines;
  for (int length = 40; length > 0; --length)
    lines.push_back(Json(Json::Object{{"text", std::string(static_cast<size_t>(length), '1')}}).dump());
  lines.push_back(R"({"prompt": "a", "completion": ""})");
  for (char a = 'a'; a <= 'j'; ++a)
    for (char b = 'a'; b <= 'k'; ++b)
      lines.push_back(fmt::format(
          R"({{"messages": [{{"role": "{}{}", "content": "beep"}}, {{"role": "assistant", "content": "a"}}]}})",
          a, b));
  RowOptions options;
  options.max_length = 20;
  options.overflow = Overflow::kDrop;
  const Mixture mixture = mixture_of({write_lines(folder, "rows.jsonl", lines)}, options);
  LoaderOptions loading;
  loading.packing = Packing::kNone;
  const DatasetSummary summary = summarize(mixture, loading);
  EXPECT_EQ(summary.num_dropped, 20 + 1 + 1 + 110);  // too long, of one token, empty, of unknown roles
  EXPECT_EQ(summary.dropped.size(), 10u);
  EXPECT_EQ(summary.dropped[0].what, "too long, 40 tokens");
  EXPECT_EQ(summary.reasons.size(), 100u);
  EXPECT_EQ(summary.reasons[0], std::pair(std::string("too long, N tokens"), int64_t{20}));
  ASSERT_EQ(summary.longest.size(), 10u);
  EXPECT_EQ(summary.longest[9].tokens, 31);
  EXPECT_EQ(summary.filled(), 0);  // rows have no limit that they could fill
  const std::string text = describe(summary);
  for (const char* part : {"an epoch: 19 documents in 19 rows\n", "  1: the answer is empty\n",
                           "] too long, 40 tokens\n", "  and 122 more\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// A text without a token has a length, too.
TEST(Inspect, CountsRowsWithoutTokens) {
  const TemporaryDirectory folder;
  RowOptions options;
  options.on_empty_answer = OnEmptyAnswer::kLearn;
  const Mixture mixture = mixture_of({write_lines(folder, "rows.jsonl", {R"({"text": ""})"})}, options);
  LoaderOptions loading;
  loading.max_length = 8;
  const DatasetSummary summary = summarize(mixture, loading);
  EXPECT_EQ(summary.lengths, std::vector<int64_t>{1});
  EXPECT_NE(describe(summary).find("        0 to 0       ######################################## 1\n"),
            std::string::npos)
      << describe(summary);
}

}  // namespace
}  // namespace temper::data
