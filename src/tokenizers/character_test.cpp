// Tokenizers of SentencePiece's kind, small enough to be seen through.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json/json.h"
#include "tests/support/errors.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

using Ids = std::vector<int32_t>;

Json json_of(std::string_view text) { return Json::parse(text, "test"); }

// BPE with unk = 0, the byte tokens <0xC3> = 1 and <0xA9> = 2, then characters and what is merged.
Json small(std::string_view options = "{}") {
  Json model =
      json_of(R"({"type":"BPE","vocab":{"<unk>":0,"<0xC3>":1,"<0xA9>":2,"▁":3,"a":4,"b":5,"ab":6,"▁a":7},
                           "merges":[["a","b"],["▁","a"]],"unk_token":"<unk>"})");
  const Json changes = json_of(options);
  for (const auto& [key, value] : changes.as_object()) model.set(key, value);
  return Json::Object{{"added_tokens", Json::Array{}}, {"model", model}};
}

Tokenizer made(const Json& json) { return Tokenizer::from_json(json.dump(), "small.json"); }

Json with(Json json, std::string_view key, std::string_view value) {
  json.set(key, json_of(value));
  return json;
}

constexpr std::string_view kMetaspace = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"})";
constexpr std::string_view kLlamaDecoder = R"({"type":"Sequence","decoders":[
  {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
  {"type":"Strip","content":" ","start":1,"stop":0}]})";

TEST(CharacterBpe, UnknownCharactersFuseOrNot) {
  EXPECT_EQ(made(small()).encode("aüüab"), (Ids{4, 0, 0, 6}));
  EXPECT_EQ(made(small(R"({"fuse_unk":true})")).encode("aüüab"), (Ids{4, 0, 6}));
  EXPECT_EQ(made(small(R"({"unk_token":null})")).encode("aüüab"), (Ids{4, 6}));
}

TEST(CharacterBpe, BytesStandForCharactersWithoutAToken) {
  const Tokenizer tokenizer = made(small(R"({"byte_fallback":true,"fuse_unk":true})"));
  EXPECT_EQ(tokenizer.encode("aéb"), (Ids{4, 1, 2, 5}));
  EXPECT_EQ(tokenizer.encode("üéa"), (Ids{1, 2, 0, 4}));  // the unknown comes late, as in the library
  const Encoding encoding = tokenizer.encode_with_offsets("aéb");
  EXPECT_EQ(encoding.spans, (std::vector<ByteSpan>{{0, 1}, {1, 3}, {1, 3}, {3, 4}}));
}

TEST(CharacterBpe, IgnoreMergesTakesWholePieces) {
  const std::string_view vocabulary =
      R"({"ignore_merges":true,"vocab":{"<unk>":0,"a":4,"b":5,"ab":6,"aab":8,"▁":3}})";
  Json json = small(vocabulary);
  Json model = json.at("model");
  model.set("merges", json_of(R"([["a","b"]])"));
  json.set("model", model);
  EXPECT_EQ(made(json).encode("aab"), Ids{8});
  EXPECT_EQ(made(json).encode("aabb"), (Ids{4, 6, 5}));
}

TEST(Metaspace, FirstIsAboutTheTextNotTheStretch) {
  Json json = with(small(), "pre_tokenizer", kMetaspace);
  json.set("added_tokens", json_of(R"([{"content":"<x>","id":9}])"));
  const Tokenizer tokenizer = made(json);
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{3, 6}));
  EXPECT_EQ(tokenizer.encode("ab<x>ab ab"), (Ids{3, 6, 9, 6, 3, 6}));
  EXPECT_EQ(tokenizer.encode("<x>ab"), (Ids{9, 6}));
  EXPECT_EQ(tokenizer.encode_with_offsets("ab a").spans, (std::vector<ByteSpan>{{0, 0}, {0, 2}, {2, 4}}));
}

TEST(Metaspace, StrippedSpaceMeansNotTheStart) {
  Json json = with(small(), "pre_tokenizer", kMetaspace);
  json.set("normalizer", json_of(R"({"type":"Strip","strip_left":true,"strip_right":true})"));
  EXPECT_EQ(made(json).encode(" ab"), Ids{6});
  EXPECT_EQ(made(json).encode("ab "), (Ids{3, 6}));
}

TEST(Metaspace, APieceBehindRemovedTextIsNotTheFirst) {
  const std::string_view twice = R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},
    {"type":"Metaspace","replacement":"▁","prepend_scheme":"never"},
    {"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]})";
  const Tokenizer tokenizer = made(with(small(), "pre_tokenizer", twice));
  EXPECT_EQ(tokenizer.encode(" ab ab"), (Ids{6, 6}));
  EXPECT_EQ(tokenizer.encode("ab ab"), (Ids{3, 6, 6}));
}

TEST(Normalizer, PrependsToEachStretchAndToAddedTokens) {
  Json json =
      with(small(), "normalizer", R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
    {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})");
  json.set(
      "added_tokens",
      json_of(R"([{"content":"bb","id":9,"normalized":true},{"content":"<x>","id":10,"normalized":false}])"));
  json.set("decoder", json_of(kLlamaDecoder));
  const Tokenizer tokenizer = made(json);
  EXPECT_EQ(tokenizer.encode("a<x>a b"), (Ids{7, 10, 7, 3, 5}));
  EXPECT_EQ(tokenizer.encode("a bb"), (Ids{7, 9}));
  EXPECT_EQ(tokenizer.encode("abb"), (Ids{3, 6, 5}));
  EXPECT_EQ(tokenizer.decode(Ids{7, 9}), "a bb");
}

TEST(Normalizer, ReplacesPatterns) {
  const Json json =
      with(small(), "normalizer", R"({"type":"Replace","pattern":{"Regex":"\\s+|x*y"},"content":"b"})");
  const Encoding encoding = made(json).encode_with_offsets("a \n axxy");
  EXPECT_EQ(encoding.ids, (Ids{6, 6}));
  EXPECT_EQ(encoding.spans, (std::vector<ByteSpan>{{0, 4}, {4, 8}}));
}

TEST(Normalizer, EmptyMatchesAreReplacedWhereNoneHasEnded) {
  Json json = with(small(), "normalizer", R"({"type":"Replace","pattern":{"Regex":"x*"},"content":"b"})");
  EXPECT_EQ(made(json).encode("axxa"), (Ids{5, 6, 6}));  // "babab": before a, for xx, at the end
  EXPECT_EQ(made(json).encode("x"), Ids{5});
  EXPECT_EQ(made(json).encode(""), Ids{});
}

TEST(Decoders, BytesAreHeldUntilTheRunEnds) {
  const Tokenizer tokenizer = made(with(small(), "decoder", kLlamaDecoder));
  const auto streamed = [&](const Ids& ids) {
    StreamDecoder stream(tokenizer);
    std::vector<std::string> parts;
    for (const int32_t id : ids) parts.push_back(stream.push(id));
    parts.push_back(stream.finish());
    EXPECT_EQ(stream.text(), tokenizer.decode(ids));
    return parts;
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(streamed({7, 7, 3}), (Parts{"a", " a", " ", ""}));  // one space goes, and only in front
  EXPECT_EQ(streamed({1, 2, 4}), (Parts{"", "", "éa", ""}));
  EXPECT_EQ(streamed({4, 1, 2}), (Parts{"a", "", "", "é"}));
  EXPECT_EQ(streamed({1, 2, 1, 4}), (Parts{"", "", "", "\uFFFD\uFFFD\uFFFDa", ""}));
  EXPECT_EQ(streamed({3, 1}), (Parts{"", "", "\uFFFD"}));
  EXPECT_EQ(tokenizer.token_bytes(7), " a");
  EXPECT_EQ(tokenizer.token_bytes(1), "\xC3");
}

TEST(Decoders, WithoutOneTokensStandApart) { EXPECT_EQ(made(small()).decode(Ids{4, 6, 3}), "a ab ▁"); }

TEST(Decoders, StripCutsBothEnds) {
  const std::string_view fused = R"({"type":"Sequence","decoders":[{"type":"Fuse"},
    {"type":"Strip","content":"a","start":1,"stop":2}]})";
  const Tokenizer tokenizer = made(with(small(), "decoder", fused));
  EXPECT_EQ(tokenizer.decode(Ids{4, 4, 5, 4, 4, 4}), "aba");
  EXPECT_EQ(tokenizer.decode(Ids{4, 4}), "");
  const Tokenizer each =
      made(with(small(), "decoder", R"({"type":"Strip","content":"a","start":1,"stop":0})"));
  EXPECT_EQ(each.decode(Ids{4, 6, 5}), "bb");
}

Json unigram(std::string_view pieces, std::string_view options = "{}") {
  Json model = json_of(R"({"type":"Unigram","unk_id":0})");
  model.set("vocab", json_of(pieces));
  const Json changes = json_of(options);
  for (const auto& [key, value] : changes.as_object()) model.set(key, value);
  return Json::Object{{"model", model}};
}

TEST(Unigram, TakesTheBestSumAndOfEqualsTheFirst) {
  const Tokenizer tokenizer =
      made(unigram(R"([["<unk>",0],["a",-1],["b",-1],["c",-1],["ab",-1.5],["bc",-1],["abc",-4]])"));
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{1, 5}));
  EXPECT_EQ(tokenizer.encode("ab"), Ids{4});
  const Tokenizer equal = made(unigram(R"([["<unk>",0],["a",-1],["b",-1],["c",-1],["ab",-1],["bc",-1]])"));
  EXPECT_EQ(equal.encode("abc"), (Ids{1, 5}));
}

TEST(Unigram, UnknownNeighboursAreOneToken) {
  const std::string_view pieces = R"([["<unk>",0],["a",-1],["xx",-50],["<0xC3>",-1],["<0xA9>",-1]])";
  const Tokenizer tokenizer = made(unigram(pieces));
  EXPECT_EQ(tokenizer.encode("ayza"), (Ids{1, 0, 1}));
  EXPECT_EQ(tokenizer.encode("axxa"), (Ids{1, 2, 1}));  // worse than two unknowns, but what these spell
  EXPECT_EQ(tokenizer.encode_with_offsets("ayéa").spans, (std::vector<ByteSpan>{{0, 1}, {1, 4}, {4, 5}}));
  const Tokenizer bytes = made(unigram(pieces, R"({"byte_fallback":true})"));
  EXPECT_EQ(bytes.encode("aéé"), (Ids{1, 3, 4, 3, 4}));
  EXPECT_EQ(bytes.encode_with_offsets("éé").spans, (std::vector<ByteSpan>{{0, 2}, {0, 2}, {2, 4}, {2, 4}}));
  EXPECT_EQ(bytes.encode("aéy"), (Ids{1, 0}));
}

TEST(CharacterErrors, NameThePlace) {
  const auto message = [](const Json& json, std::string_view text = "") {
    return error_of([&] { made(json).encode(text); });
  };
  const std::string_view none = R"({"unk_id":null})";
  EXPECT_EQ(message(unigram(R"([["a",0]])", none), "b"),
            "[small.json] model has no unk_id, and no token for 'b'");
  EXPECT_EQ(message(unigram(R"([["a",0]])", R"({"unk_id":1})")),
            "[small.json] model.unk_id is 1, expected the id of one of the 1 tokens");
  EXPECT_EQ(message(unigram(R"([["a",0],["b"]])")),
            "[small.json] model.vocab[1] must be [\"piece\", score], found [\"b\"]");
  EXPECT_EQ(message(small(R"({"unk_token":"?"})")),
            "[small.json] model.unk_token is '?', which vocab does not have");
  EXPECT_EQ(
      message(with(small(), "decoder",
                   R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})")),
      "[small.json] decoder.decoders[1].type is 'ByteFallback', after Fuse; only Strip may come after Fuse");
  EXPECT_EQ(message(with(small(), "decoder", R"({"type":"Strip","content":"ab","start":1,"stop":0})")),
            "[small.json] decoder.content must be one character, found 'ab'");
  EXPECT_EQ(message(with(small(), "pre_tokenizer",
                         R"({"type":"Metaspace","replacement":"▁","add_prefix_space":false})")),
            "[small.json] pre_tokenizer.add_prefix_space is false, which needs the prepend_scheme 'never'");
  EXPECT_EQ(message(with(small(), "normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AA=="})")),
            "[small.json] normalizer.precompiled_charsmap must hold a trie and texts, found 1 bytes");
}

}  // namespace
}  // namespace temper::tokenizers
