// Byte-level vocabularies that lack bytes: é is \xC3\xA9, spelled Ã©, € is \xE2\x82\xAC, spelled âĤ¬.
#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

using Ids = std::vector<int32_t>;
using Spans = std::vector<ByteSpan>;

Tokenizer tokenizer_with(std::string_view model_options) {
  return Tokenizer::from_json(
      fmt::format(R"({{"model":{{"type":"BPE","vocab":{{"a":0,"b":1,"ab":2,"Ã":3,"bb":4,"<none>":5,"a©":6}},
                      "merges":["a b","b b"]{}}},
                      "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}},
                      "decoder":{{"type":"ByteLevel"}}}})",
                  model_options),
      "few.json");
}

void expect_encoding(const Tokenizer& tokenizer, std::string_view text, const Ids& ids, const Spans& spans,
                     size_t num_dropped) {
  SCOPED_TRACE(text);
  EXPECT_EQ(tokenizer.encode(text), ids);
  const Encoding encoding = tokenizer.encode_with_offsets(text);
  EXPECT_EQ(encoding.ids, ids);
  EXPECT_EQ(encoding.spans, spans);
  EXPECT_EQ(encoding.num_dropped, num_dropped);
}

TEST(MissingBytes, AreDroppedAndCounted) {
  const Tokenizer tokenizer = tokenizer_with("");
  for (int again = 0; again < 2; ++again) {  // then from the cache
    expect_encoding(tokenizer, "ab", {2}, {{0, 2}}, 0);
    expect_encoding(tokenizer, "\u20ac", {}, {}, 3);
    expect_encoding(tokenizer, " ", {}, {}, 1);
    expect_encoding(tokenizer, "\u00e9b", {3, 1}, {{0, 1}, {2, 3}}, 1);
    expect_encoding(tokenizer, "a\u20acb a", {2, 0}, {{0, 5}, {6, 7}},
                    4);  // what becomes neighbours is merged
  }
}

TEST(MissingBytes, BecomeTheUnknownTokenWhereThereIsOne) {
  const Tokenizer each = tokenizer_with(R"(,"unk_token":"<none>")");
  expect_encoding(each, "a\u20acb", {0, 5, 5, 5, 1}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}, 0);
  const Tokenizer fused = tokenizer_with(R"(,"unk_token":"<none>","fuse_unk":true)");
  expect_encoding(fused, "a\u20acb \u20ac", {0, 5, 1, 5}, {{0, 1}, {1, 4}, {4, 5}, {5, 9}}, 0);
  EXPECT_EQ(error_of([] { tokenizer_with(R"(,"unk_token":"?")"); }),
            "[few.json] model.unk_token is '?', which vocab does not have");
}

TEST(MissingBytes, DoNotMatterWhereThePieceIsAToken) {
  const Tokenizer tokenizer = tokenizer_with(R"(,"ignore_merges":true)");
  // The token of the bytes a and \xA9 cannot be reached from text; one of é can.
  expect_encoding(tokenizer, "bb", {4}, {{0, 2}}, 0);
  expect_encoding(tokenizer, "\u00e9", {3}, {{0, 1}}, 1);
}

TEST(MissingBytes, OfModelsOverCharactersAreCountedToo) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})", "few.json");
  expect_encoding(tokenizer, "a\u20acb", {2}, {{0, 5}}, 3);
}

}  // namespace
}  // namespace temper::tokenizers
