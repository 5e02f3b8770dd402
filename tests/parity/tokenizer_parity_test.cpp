// Every folder of the goldens with tokenizer.json and cases.jsonl: the same ids and texts as recorded.
// Each line of cases.jsonl is {"text", "ids", "decoded"}, without special tokens; there may be "ids_special",
// with them, and "random_ids" with what they decode to, "random_decoded"
// (tools/oracles/make_tokenizer_cases.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "base/json/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tests/parity/golden_case.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

using parity::goldens_folder;

std::vector<std::string> golden_tokenizers() {
  std::vector<std::string> found;
  if (!is_directory(goldens_folder())) return found;
  for (const std::string& name : list_directory(goldens_folder())) {
    const std::string folder = join_path(goldens_folder(), name);
    if (exists(join_path(folder, "tokenizer.json")) && exists(join_path(folder, "cases.jsonl")))
      found.push_back(name);
  }
  return found;
}

class TokenizerParity : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TokenizerParity);

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder stream(tokenizer, false);
  std::string joined;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    EXPECT_EQ(valid_utf8_prefix(part), part.size()) << "half a character";
    joined += part;
  }
  joined += stream.finish();
  EXPECT_EQ(joined, stream.text());
  return joined;
}

// What no token need cover: white space between words, and what a table of replacements removes.
bool may_vanish(char32_t c) {
  return c <= 0x20 || c == 0x7F || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200B) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Spans lie in order inside the text and leave no character out but those that the vocabulary lacks.
void expect_ordered(const Encoding& encoding, std::string_view text) {
  ASSERT_EQ(encoding.spans.size(), encoding.ids.size());
  size_t begin = 0, end = 0, left_out = 0;
  const auto leave_out = [&](size_t to) {
    while (end < to) {
      const Utf8Step step = next_utf8(text.substr(end));
      const size_t size = std::min(step.size, to - end);  // a character's first bytes may be left out alone
      if (!may_vanish(step.value)) left_out += size;
      end += size;
    }
  };
  for (const ByteSpan span : encoding.spans) {
    EXPECT_LE(span.begin, span.end);
    EXPECT_GE(span.begin, begin);
    EXPECT_TRUE(span.begin == span.end || span.end >= end);
    EXPECT_LE(span.end, text.size());
    leave_out(span.begin);
    begin = span.begin;
    end = std::max(end, span.end);
  }
  leave_out(text.size());
  EXPECT_LE(left_out, encoding.num_dropped) << "bytes are in no token";
}

void expect_case(const Tokenizer& tokenizer, const Json& row) {
  const std::string& text = row.at("text").as_string();
  const std::vector<int32_t> ids = ids_of(row.at("ids"));
  EXPECT_EQ(tokenizer.encode(text), ids);
  const Encoding encoding = tokenizer.encode_with_offsets(text);
  EXPECT_EQ(encoding.ids, ids);
  expect_ordered(encoding, text);
  EXPECT_EQ(tokenizer.decode(ids), row.at("decoded").as_string());
  EXPECT_EQ(streamed(tokenizer, ids), row.at("decoded").as_string());
  if (const Json* special = row.find("ids_special")) {
    EXPECT_EQ(tokenizer.encode(text, true), ids_of(*special));
    EXPECT_EQ(tokenizer.encode_with_offsets(text, true).ids, ids_of(*special));
  }
  if (const Json* random = row.find("random_ids")) {
    EXPECT_EQ(tokenizer.decode(ids_of(*random)), row.at("random_decoded").as_string());
    EXPECT_EQ(streamed(tokenizer, ids_of(*random)), row.at("random_decoded").as_string());
  }
}

TEST_P(TokenizerParity, EncodesAndDecodesAsRecorded) {
  const std::string folder = join_path(goldens_folder(), GetParam());
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::string cases = read_file(join_path(folder, "cases.jsonl"));
  size_t number = 0;
  for (size_t begin = 0; begin < cases.size();) {
    const size_t end = std::min(cases.find('\n', begin), cases.size());
    const Json row = Json::parse(std::string_view(cases).substr(begin, end - begin), "cases.jsonl");
    begin = end + 1;
    SCOPED_TRACE(fmt::format("line {}: {}", ++number, row.at("text").dump(-1, true)));
    expect_case(tokenizer, row);
    if (HasFatalFailure()) break;
  }
  EXPECT_GT(number, 0u);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TokenizerParity, testing::ValuesIn(golden_tokenizers()),
                         [](const auto& info) { return info.param; });

TEST(Goldens, EveryTokenizerIsThere) {
  if (!parity::is_own_goldens())
    GTEST_SKIP() << "TEMPER_GOLDENS names another folder, with " << golden_tokenizers().size()
                 << " tokenizers";
  const std::vector<std::string> expected{
      "tokenizer_bpe_unk",        "tokenizer_bytes_dropped", "tokenizer_bytes_dropped_whole",
      "tokenizer_bytes_fallback", "tokenizer_bytes_unk",     "tokenizer_bytes_unk_fused",
      "tokenizer_deepseek",       "tokenizer_falcon",        "tokenizer_gemma",
      "tokenizer_gpt2",           "tokenizer_gpt2_prefixed", "tokenizer_level_first",
      "tokenizer_llama2",         "tokenizer_llama2_legacy", "tokenizer_llama3",
      "tokenizer_o200k",          "tokenizer_qwen",          "tokenizer_qwen35",
      "tokenizer_unigram",        "tokenizer_unigram_bytes", "tokenizer_unigram_charsmap",
      "tokenizer_unigram_words"};
  EXPECT_EQ(golden_tokenizers(), expected);
}

}  // namespace
}  // namespace temper::tokenizers
