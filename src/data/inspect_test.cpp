#include "data/inspect.h"

#include <gtest/gtest.h>

#include "data/test_support.h"

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
  EXPECT_EQ(summary.counts().truncated, 2);
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

}  // namespace
}  // namespace temper::data
