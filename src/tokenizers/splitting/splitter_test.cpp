#include "tokenizers/splitting/splitter.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace temper::tokenizers {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view pattern, SplitBehavior behavior, std::string_view text, bool invert = false) {
  std::vector<std::string_view> pieces;
  Split(Pattern::regex(pattern, "test"), behavior, invert).run(text, pieces);
  return {pieces.begin(), pieces.end()};
}

Pieces isolate(std::string_view pattern, std::string_view text) {
  return split(pattern, SplitBehavior::kIsolated, text);
}

TEST(Split, Behaviors) {
  EXPECT_EQ(split("-", SplitBehavior::kIsolated, "a--b-"), (Pieces{"a", "-", "-", "b", "-"}));
  EXPECT_EQ(split("-", SplitBehavior::kRemoved, "a--b-"), (Pieces{"a", "b"}));
  EXPECT_EQ(split("-", SplitBehavior::kMergedWithPrevious, "a--b-"), (Pieces{"a-", "-", "b-"}));
  EXPECT_EQ(split("-", SplitBehavior::kMergedWithNext, "-a--b"), (Pieces{"-a", "-", "-b"}));
  EXPECT_EQ(split("-", SplitBehavior::kContiguous, "a--b-"), (Pieces{"a", "--", "b", "-"}));
  EXPECT_EQ(split("-", SplitBehavior::kRemoved, "a--b-", true), (Pieces{"-", "-", "-"}));
}

TEST(Split, EmptyMatchesMakeProgress) {
  EXPECT_EQ(isolate("x*", "axx\u00e9"), (Pieces{"a", "xx", "\u00e9"}));
  EXPECT_EQ(isolate("\\b", "ab cd"), (Pieces{"ab", " ", "cd"}));
}

TEST(Split, LongTextsDoNotExhaustTheStack) {
  const std::string text(2'000'000, ' ');
  EXPECT_EQ(isolate("\\s+(?!\\S)|\\s+", text + "a").size(), 3u);
  EXPECT_EQ(isolate("(?:a|b|c d)+e", std::string(300'000, 'a')).size(), 1u);
}

// Where Oniguruma and PCRE2 disagree; the expected pieces are Oniguruma's.
TEST(Pattern, MeansWhatOnigurumaMeans) {
  EXPECT_EQ(isolate("\\s+", "a\u180eb\u0085c\u3000d"), (Pieces{"a\u180eb", "\u0085", "c", "\u3000", "d"}));
  EXPECT_EQ(isolate("[^\\s]+", "a\u180e\u2028b"), (Pieces{"a\u180e", "\u2028", "b"}));
  EXPECT_EQ(isolate("\\w+", "e\u0301\u203f\u00b2 \u2074"), (Pieces{"e\u0301\u203f\u00b2", " \u2074"}));
  EXPECT_EQ(isolate("[\\w]+", "a\u00b2b"), (Pieces{"a", "\u00b2", "b"}));
  EXPECT_EQ(isolate("\\p{Han}+", "\u4e00\u3001\u4e01"), (Pieces{"\u4e00", "\u3001", "\u4e01"}));
  EXPECT_EQ(isolate("[a-z&&[^aeiou]]+", "bcdaxe"), (Pieces{"bcd", "a", "x", "e"}));
  EXPECT_EQ(isolate("[a[0-9]]+", "b1a2c"), (Pieces{"b", "1a2", "c"}));
  EXPECT_EQ(isolate("[^\\w&&[^a-c]]+", "ax.b"), (Pieces{"a", "x", ".b"}));
  EXPECT_EQ(isolate("a{1,2}+", "aaaaab"), (Pieces{"aaaaa", "b"}));
  EXPECT_EQ(isolate("a{2}?b", "aabb"), (Pieces{"aab", "b"}));
  EXPECT_EQ(isolate("a{,2}b", "aaab"), (Pieces{"a", "aab"}));
  EXPECT_EQ(isolate("\\h+", "xyzBEEF7g"), (Pieces{"xyz", "BEEF7", "g"}));
  EXPECT_EQ(isolate("(?m:a.)b", "a\nb"), (Pieces{"a\nb"}));
  EXPECT_EQ(isolate("^.", "ab\ncd"), (Pieces{"a", "b\n", "c", "d"}));
  EXPECT_EQ(isolate("[[:punct:]]", "a$b"), (Pieces{"a", "$", "b"}));
  EXPECT_EQ(isolate("\\p{Punct}", "a$b."), (Pieces{"a$b", "."}));
  EXPECT_EQ(isolate("\\u00e9", "a\u00e9"), (Pieces{"a", "\u00e9"}));
  EXPECT_EQ(isolate("(?i:'s)", "a'\u017f"), (Pieces{"a", "'\u017f"}));
}

TEST(Pattern, ErrorsNameThePattern) {
  const auto message = [](std::string_view pattern) {
    try {
      Pattern::regex(pattern, "[file] split");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("a(b"),
            "[file] split: pattern 'a(b' cannot be compiled: missing closing parenthesis (at byte 3)");
  EXPECT_EQ(message("[ab"), "[file] split: pattern '[ab': a class is not closed (at byte 3)");
}

TEST(Splitter, DigitsAndText) {
  const auto run = [](std::string_view json, std::string_view text) {
    Pieces pieces;
    Splitter::from_json(Json::parse(json, "test"), "[test] pre_tokenizer")
        .run(text, false, [&](const Piece& piece) { pieces.emplace_back(piece.text); });
    return pieces;
  };
  EXPECT_EQ(run(R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
                   {"type":"ByteLevel","use_regex":false,"add_prefix_space":false}]})",
                "a12\u00bd"),
            (Pieces{"a", "1", "2", "\u00bd"}));
  EXPECT_EQ(run(R"({"type":"Sequence","pretokenizers":[{"type":"Digits"},
                   {"type":"ByteLevel","use_regex":false,"add_prefix_space":false}]})",
                "a12b"),
            (Pieces{"a", "12", "b"}));
  EXPECT_EQ(
      run(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":".*"},"behavior":"Removed"},
                   {"type":"ByteLevel"}]})",
          "a.*b c"),
      (Pieces{" a", " b", " c"}));
}

}  // namespace
}  // namespace temper::tokenizers
