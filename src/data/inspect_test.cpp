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
  const Example example = encoder.encode(row).example;
  const std::string plain = describe_row(example, qwen(), false);
  EXPECT_NE(plain.find("[[1|<|im_end|>|]]\\n|\n"), std::string::npos) << plain;
  EXPECT_NE(plain.find("\\t"), std::string::npos) << plain;
  EXPECT_NE(plain.find("messages: "), std::string::npos) << plain;
  EXPECT_NE(plain.find(" 2 targets\n"), std::string::npos) << plain;
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  const std::string colored = describe_row(example, qwen(), true);
  EXPECT_NE(colored.find("\x1b[32m1|<|im_end|>|\x1b[0m"), std::string::npos) << colored;
}

TEST(Inspect, SumsUpADataSet) {
  const TemporaryDirectory folder;
  std::vector<std::string> lines = {R"({"prompt": "a", "completion": "b"})", R"({"none": 1})"};
  for (int i = 1; i <= 10; ++i)
    lines.push_back(Json(Json::Object{{"text", std::string(static_cast<size_t>(i), '1')}}).dump());
  const Source source({write_lines(folder, "rows.jsonl", lines)});
  RowOptions options;
  options.max_length = 8;
  const RowEncoder encoder(qwen(), chatml(), options);
  const DatasetSummary summary = summarize(source, encoder, OnBadRow::kSkip);
  EXPECT_EQ(summary.formats, (std::array<int64_t, 3>{0, 1, 10}));
  EXPECT_EQ(summary.percentiles[4], 10);
  EXPECT_EQ(summary.counts.truncated, 2);
  const std::string text = describe(summary);
  EXPECT_NE(text.find("prompt/completion 1, text 10"), std::string::npos) << text;
  EXPECT_NE(text.find("longest 10"), std::string::npos) << text;
  EXPECT_EQ(summarize(source, encoder, OnBadRow::kSkip, 5).counts.rows, 5);
}

}  // namespace
}  // namespace temper::data
