#include "tokenizers/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"
#include "tokenizers/text/byte_level.h"

namespace temper::tokenizers {
namespace {

constexpr int kFirstMerged = 256;  // bytes have their own value as id

// A tokenizer.json with all bytes, the merges given, and the added tokens from 1000 on.
Json tiny(const std::vector<std::pair<std::string, std::string>>& merges, const Json::Array& added = {}) {
  Json::Object vocab;
  for (int byte = 0; byte < 256; ++byte)
    vocab.emplace_back(spelling_of_bytes(std::string(1, static_cast<char>(byte))), byte);
  Json::Array rules;
  for (const auto& [left, right] : merges) {
    vocab.emplace_back(left + right, kFirstMerged + static_cast<int>(rules.size()));
    rules.emplace_back(rules.size() % 2 ? Json(left + " " + right) : Json(Json::Array{left, right}));
  }
  Json::Array tokens;
  for (Json token : added) {
    token.set("id", 1000 + static_cast<int>(tokens.size()));
    tokens.push_back(token);
  }
  const Json byte_level =
      Json::parse(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})", "test");
  return Json::Object{{"added_tokens", tokens},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", byte_level},
                      {"post_processor", nullptr},
                      {"decoder", byte_level},
                      {"model", Json::Object{{"type", "BPE"}, {"vocab", vocab}, {"merges", rules}}}};
}

Tokenizer made(const Json& json) { return Tokenizer::from_json(json.dump(), "tiny.json"); }

using Ids = std::vector<int32_t>;

std::string message_of(const Json& json) {
  try {
    made(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Json json_of(std::string_view text) { return Json::parse(text, "test"); }

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const Tokenizer tokenizer = made(tiny({{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "aa"}}));
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{'a', 256}));
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{257}));
  EXPECT_EQ(tokenizer.encode("aaa"), (Ids{258, 'a'}));
  EXPECT_EQ(tokenizer.encode("aaaaa"), (Ids{259, 'a'}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("aaaaabc\n  d")), "aaaaabc\n  d");
  EXPECT_EQ(tokenizer.vocab_size(), 260);
}

TEST(Tokenizer, LongPiecesTakeLittleTime) {
  const Tokenizer tokenizer = made(tiny({{"a", "b"}, {"ab", "ab"}}));
  std::string text;
  for (int i = 0; i < 400000; ++i) text += "ab";
  EXPECT_EQ(tokenizer.encode(text), Ids(200000, 257));
}

TEST(Tokenizer, IgnoreMergesTakesWholeTokens) {
  Json json = tiny({{"a", "b"}, {"b", "c"}});
  Json model = json.at("model");
  Json vocab = model.at("vocab");
  vocab.set("abc", 300);
  model.set("vocab", vocab);
  json.set("model", model);
  EXPECT_EQ(made(json).encode("abc"), (Ids{256, 'c'}));
  model.set("ignore_merges", true);
  json.set("model", model);
  EXPECT_EQ(made(json).encode("abc"), (Ids{300}));
}

TEST(Tokenizer, AddedTokensAreTheLeftmostLongest) {
  const Tokenizer tokenizer =
      made(tiny({}, {json_of(R"({"content":"<a>","special":true})"), json_of(R"({"content":"<a>!"})"),
                     json_of(R"({"content":"a>!!"})")}));
  EXPECT_EQ(tokenizer.encode("x<a>y"), (Ids{'x', 1000, 'y'}));
  EXPECT_EQ(tokenizer.encode("<a>?a>!!"), (Ids{1000, '?', 1002}));
  EXPECT_EQ(tokenizer.decode(Ids{1000, 'x', 1002}, true), "xa>!!");
  EXPECT_TRUE(tokenizer.is_special(1000));
  EXPECT_FALSE(tokenizer.is_special(1001));
  EXPECT_EQ(tokenizer.token_id("<a>"), 1000);
  EXPECT_EQ(tokenizer.token_id("<b>"), std::nullopt);
}

TEST(Tokenizer, NormalizedTokensAreFoundAfterTheRawOnes) {
  Json json = tiny({}, {json_of(R"({"content":"e\u0301","normalized":true})"),
                        json_of(R"({"content":"\u212b","normalized":false})")});
  json.set("normalizer", json_of(R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})"));
  const Tokenizer tokenizer = made(json);
  EXPECT_EQ(tokenizer.encode("\u00e9"), (Ids{1000}));  // the token's text is normalized, too
  EXPECT_EQ(tokenizer.encode("e\u0301"), (Ids{1000}));
  EXPECT_EQ(tokenizer.encode("\u212b"), (Ids{1001}));  // found before it would become U+00C5
  EXPECT_EQ(tokenizer.encode("\u00c5"), (Ids{0xC3, 0x85}));
}

TEST(Tokenizer, OfTokensThatNormalizationMakesEqualTheFirstSpecialOneCounts) {
  Json json = tiny(
      {}, {json_of(R"({"content":"Ab","normalized":true})"), json_of(R"({"content":"aB","normalized":true})"),
           json_of(R"({"content":"AB","normalized":true,"special":true})")});
  json.set("normalizer", json_of(R"({"type":"Lowercase"})"));
  EXPECT_EQ(made(json).encode("xab"), (Ids{'x', 1002}));
}

TEST(Tokenizer, MarksNewerThanUnicode9DoNotMove) {
  Json json = tiny({});
  json.set("normalizer", json_of(R"({"type":"NFC"})"));
  EXPECT_EQ(made(json).encode("\u0eb9\u0eba"), (Ids{0xE0, 0xBA, 0xB9, 0xE0, 0xBA, 0xBA}));
  EXPECT_EQ(made(json).encode("a\u0301\u0323"), (Ids{0xE1, 0xBA, 0xA1, 0xCC, 0x81}));  // these do
}

TEST(Tokenizer, TokensStripAndStandAlone) {
  const Tokenizer tokenizer = made(
      tiny({}, {json_of(R"({"content":"<L>","lstrip":true})"), json_of(R"({"content":"<R>","rstrip":true})"),
                json_of(R"({"content":"Wo","single_word":true})")}));
  EXPECT_EQ(tokenizer.encode("a \u3000<L> b"), (Ids{'a', 1000, ' ', 'b'}));
  EXPECT_EQ(tokenizer.encode("a <R> \n\tb"), (Ids{'a', ' ', 1001, 'b'}));
  EXPECT_EQ(tokenizer.encode("<R>  <L>"), (Ids{1001, 1000}));
  EXPECT_EQ(tokenizer.encode("Wo-WoWo-aWo-Wo\u0301"),
            (Ids{1002, '-', 'W', 'o', 'W', 'o', '-', 'a', 'W', 'o', '-', 'W', 'o', 0xCC, 0x81}));
}

TEST(Tokenizer, AMatchInsideWhatRstripTookCountsAgain) {
  const Tokenizer tokenizer =
      made(tiny({}, {json_of(R"({"content":"<X>","rstrip":true})"), json_of(R"({"content":" a"})"),
                     json_of(R"({"content":"  ","rstrip":true})")}));
  EXPECT_EQ(tokenizer.encode("<X>  a"), (Ids{1000, 1002, 'a'}));
  EXPECT_EQ(tokenizer.encode("<X> a"), (Ids{1000, 1001}));
}

TEST(Tokenizer, PostProcessorAddsSpecialTokens) {
  Json json = tiny({});
  json.set("post_processor", json_of(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},
    {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
      {"SpecialToken":{"id":"</s>","type_id":0}}],
     "special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[8,9],"tokens":[]}}}]})"));
  const Tokenizer tokenizer = made(json);
  EXPECT_EQ(tokenizer.encode("a", true), (Ids{7, 'a', 8, 9}));
  EXPECT_EQ(tokenizer.encode("a"), (Ids{'a'}));
}

TEST(Tokenizer, PrefixSpaceGoesBeforeEachStretchOfText) {
  Json json = tiny({}, {json_of(R"({"content":"<x>"})")});
  json.set("pre_tokenizer", json_of(R"({"type":"ByteLevel","add_prefix_space":true})"));
  EXPECT_EQ(made(json).encode("a<x> b<x>c"), (Ids{' ', 'a', 1000, ' ', 'b', 1000, ' ', 'c'}));
}

TEST(Tokenizer, BrokenUtf8) {
  const Tokenizer tokenizer = made(tiny({}));
  EXPECT_EQ(tokenizer.encode("a\xFF"), (Ids{'a', 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(tokenizer.decode(Ids{0xF0, 0x9F, 'a', -100, 5000}), "\uFFFDa");
  EXPECT_EQ(tokenizer.token_text(0xE2), "\\xE2");
  EXPECT_EQ(tokenizer.token_text('\n'), "\\n");
  EXPECT_EQ(tokenizer.token_text('a'), "a");
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const Tokenizer tokenizer = made(tiny({}, {json_of(R"({"content":"<s>","special":true})")}));
  StreamDecoder stream(tokenizer);
  std::vector<std::string> pieces;
  for (const int32_t id : tokenizer.encode("a\u00e9<s>\U0001F600")) pieces.push_back(stream.push(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "\u00e9", "", "", "", "", "\U0001F600"}));
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.text(), "a\u00e9\U0001F600\uFFFD");
}

TEST(Tokenizer, ManyThreadsGiveTheSameIds) {
  const Tokenizer tokenizer = Tokenizer::load(TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_qwen");
  const std::string text =
      read_file(TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_qwen/cases.jsonl").substr(0, 50000);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer.encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_EQ(tokenizer.decode(results[0]), text);
}

TEST(TokenizerErrors, NameTheComponentAndTheAlternatives) {
  const auto with = [](std::string_view key, std::string_view value) {
    Json json = tiny({});
    json.set(key, json_of(value));
    return message_of(json);
  };
  EXPECT_EQ(
      with("normalizer", R"({"type":"BertNormalizer"})"),
      "[tiny.json] normalizer.type is 'BertNormalizer'; supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, "
      "Lowercase, Strip, Precompiled, Sequence");
  EXPECT_EQ(
      with("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"BertPreTokenizer"}]})"),
      "[tiny.json] pre_tokenizer.pretokenizers[0].type is 'BertPreTokenizer'; supported: Metaspace, Split, "
      "Digits, Punctuation, Whitespace, WhitespaceSplit, ByteLevel, Sequence");
  EXPECT_EQ(with("pre_tokenizer",
                 R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]})"),
            "[tiny.json] pre_tokenizer.pretokenizers[1].type is 'ByteLevel', a second time; at most one is "
            "supported");
  EXPECT_EQ(with("pre_tokenizer", "null"),
            "[tiny.json] decoder has a ByteLevel, but pre_tokenizer has none; both must have it, or neither");
  EXPECT_EQ(with("decoder", "null"),
            "[tiny.json] decoder has no ByteLevel, but pre_tokenizer has one; both must have it, or neither");
  EXPECT_EQ(
      with("decoder", R"({"type":"WordPiece"})"),
      "[tiny.json] decoder.type is 'WordPiece'; supported: ByteLevel, Replace, ByteFallback, Fuse, Strip, "
      "Metaspace, Sequence");
  EXPECT_EQ(with("post_processor", R"({"type":"Frame"})"),
            "[tiny.json] post_processor.type is 'Frame'; supported: TemplateProcessing, RobertaProcessing, "
            "BertProcessing, ByteLevel, Sequence");
  EXPECT_EQ(with("post_processor", R"({"type":"BertProcessing","cls":["a",97],"sep":["b",3000]})"),
            "[tiny.json] post_processor adds the id 3000, which no token has");
  EXPECT_EQ(with("model", R"({"type":"WordPiece"})"),
            "[tiny.json] model.type is 'WordPiece'; supported: BPE, Unigram");
  EXPECT_EQ(with("model", R"({"type":"Unigram","vocab":[["a",0.5]]})"),
            "[tiny.json] model.type is 'Unigram', which is not supported after the pre-tokenizer ByteLevel");
  EXPECT_EQ(with("model", R"({"type":"BPE","vocab":{"a":0},"merges":[]})"), "no error");
  EXPECT_EQ(with("model", R"({"type":"BPE","vocab":{"a":0},"merges":[["a","b"]]})"),
            "[tiny.json] model.merges[0] needs the token 'b', which vocab does not have");
  EXPECT_EQ(with("model", R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"),
            "[tiny.json] tokens 'a' and 'b' both have id 0");
  EXPECT_EQ(with("added_tokens", R"([{"content":"","id":1}])"),
            "[tiny.json] added_tokens[0].content must be a text of at least one character");
  EXPECT_EQ(with("added_tokens", R"([{"content":"a","id":999}])"),
            "[tiny.json] token 'a' has two ids, 97 and 999");
}

}  // namespace
}  // namespace temper::tokenizers
