#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

const std::string kGoldens = TEMPER_SOURCE_DIR "/tests/goldens/";

const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::load(kGoldens + "tokenizer_qwen");
  return tokenizer;
}

std::string at(std::string_view text, ByteSpan span) {
  return std::string(text.substr(span.begin, span.end - span.begin));
}

class Offsets : public testing::TestWithParam<std::string> {};

TEST_P(Offsets, IdsAreThoseOfEncodeAndSpansCoverTheText) {
  const Tokenizer tokenizer = Tokenizer::load(kGoldens + GetParam());
  const std::string cases = read_file(kGoldens + GetParam() + "/cases.jsonl");
  for (size_t begin = 0; begin < cases.size();) {
    const size_t end = std::min(cases.find('\n', begin), cases.size());
    const Json row = Json::parse(std::string_view(cases).substr(begin, end - begin), "cases.jsonl");
    begin = end + 1;
    const std::string& text = row.at("text").as_string();
    const Encoding encoding = tokenizer.encode_with_offsets(text);
    ASSERT_EQ(encoding.ids, tokenizer.encode(text)) << row.dump();
    ASSERT_EQ(encoding.spans.size(), encoding.ids.size());
    size_t done = 0, last_begin = 0;
    for (size_t i = 0; i < encoding.spans.size(); ++i) {
      const ByteSpan span = encoding.spans[i];
      ASSERT_GE(span.begin, last_begin) << row.dump();
      ASSERT_LE(span.begin, done) << row.dump();  // no gaps
      ASSERT_GE(span.end, done) << row.dump();
      last_begin = span.begin;
      done = span.end;
    }
    ASSERT_EQ(done, text.size()) << row.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Offsets, testing::Values("tokenizer_qwen", "tokenizer_llama3"));

TEST(Offsets, SpansHoldTheBytesOfTheirTokens) {
  const std::string text = "<|im_start|>user\nDon't 北京 <think>x</think>🙂<|im_end|>";
  const Encoding encoding = qwen().encode_with_offsets(text);
  size_t done = 0;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    EXPECT_EQ(encoding.spans[i].begin, done);
    EXPECT_EQ(at(text, encoding.spans[i]), qwen().token_bytes(encoding.ids[i]));
    done = encoding.spans[i].end;
  }
  EXPECT_EQ(done, text.size());
}

TEST(Offsets, ChangedCharactersCoverTheirGroup) {
  // "é" as e + U+0301: the composed character has fewer bytes than it came from.
  const std::string text = "ab\ne\xCC\x81\n<|im_end|>\n\xEA\xB0\x80\xE1\x86\xA8.";
  const Encoding encoding = qwen().encode_with_offsets(text);
  EXPECT_EQ(encoding.ids, qwen().encode(text));
  std::vector<std::string> covered;
  for (const ByteSpan span : encoding.spans) {
    const std::string part = at(text, span);
    if (covered.empty() || covered.back() != part) covered.push_back(part);
  }
  EXPECT_NE(std::find(covered.begin(), covered.end(), "e\xCC\x81"), covered.end());
  EXPECT_NE(std::find(covered.begin(), covered.end(), "<|im_end|>"), covered.end());
  EXPECT_NE(std::find(covered.begin(), covered.end(), "\xEA\xB0\x80\xE1\x86\xA8"), covered.end());
  EXPECT_EQ(covered.back(), ".");
}

TEST(Offsets, AddedTokensCoverNothing) {
  std::string file = read_file(kGoldens + "tokenizer_qwen/tokenizer.json");
  const std::string none = "\"post_processor\": null";
  file.replace(file.find(none), none.size(), R"("post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "B"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "E"}}],
    "special_tokens": {"B": {"ids": [3001]}, "E": {"ids": [3002]}}})");
  const Tokenizer tokenizer = Tokenizer::from_json(file, "framed");
  const Encoding encoding = tokenizer.encode_with_offsets("hi there", true);
  EXPECT_EQ(encoding.ids, tokenizer.encode("hi there", true));
  EXPECT_EQ(encoding.ids.front(), 3001);
  EXPECT_EQ(encoding.ids.back(), 3002);
  EXPECT_EQ(encoding.spans.front(), (ByteSpan{0, 0}));
  EXPECT_EQ(encoding.spans.back(), (ByteSpan{8, 8}));
}

TEST(Offsets, APrefixSpaceCoversNothing) {
  std::string file = read_file(kGoldens + "tokenizer_qwen/tokenizer.json");
  const std::string off = "\"add_prefix_space\": false";
  file.replace(file.find(off), off.size(), "\"add_prefix_space\": true");
  const Tokenizer tokenizer = Tokenizer::from_json(file, "prefixed");
  for (const std::string text : {"the end", "\n\nthe", "ab1 2cd<|im_end|>the"}) {
    const Encoding encoding = tokenizer.encode_with_offsets(text);
    EXPECT_EQ(encoding.ids, tokenizer.encode(text));
    size_t done = 0;
    for (const ByteSpan span : encoding.spans) {
      EXPECT_EQ(span.begin, done);
      EXPECT_GE(span.end, span.begin);
      done = span.end;
    }
    EXPECT_EQ(done, text.size());
  }
}

TEST(Offsets, RefusesTextThatIsNotUtf8) { EXPECT_THROW(qwen().encode_with_offsets("ab\xFF"), Error); }

}  // namespace
}  // namespace temper::tokenizers
