// The hand-made splitters against PCRE2 with the same pattern.
#include "tokenizers/splitting/fast_splitters.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "tokenizers/splitting/splitter.h"

namespace temper::tokenizers {
namespace {

constexpr int kStrings = 100'000;

// Characters that the patterns treat in a way of their own, and neighbours of those.
constexpr std::u32string_view kInteresting =
    U"'''sStTrReEvVmMlLdDaZ  "
    U"\r\n\r\n\t\v\f/!_-019\u0085\u00A0\u00AD\u00B2\u00BD\u00C9\u00E9\u00DF\u017F\u01C5"
    U"\u02B0\u0300\u0301\u0345\u0660\u0903\u0488\u1680\u180E\u1D2C\u1E9E\u1F88\u2000\u200B\u200D\u2028\u2029"
    U"\u202F"
    U"\u2019\u2160\u212A\u212B\u20AC\u2460\u3000\u3001\u3040\u304B\u3099\u309F\u30A0\u30AB\u30FF\u3100\u3400"
    U"\u4DFF"
    U"\u4E00\u4E2D\u9FA5\u9FA6\u9FFF\uAC00\uD7A3\u1100\u1161\u11A8\uE000\uF8FF\uFB05\uFB06\uFEFF\uFF11\uFF21"
    U"\uFFFD"
    U"\uFFFE\u0378\u0080\u007F\u0001\U00010400\U00010428\U0001D400\U0001D7CE\U0001F1E6\U0001F600\U00020000"
    U"\U0002F800\U000E0001\U000E0100\U000F0000\U0010FFFD\U0010FFFF\U00030000\U00050000";

class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}
  std::string next() {
    std::string text;
    for (uint32_t left = 1 + below(20); left > 0; --left) append_utf8(text, character());
    return text;
  }

 private:
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  char32_t character() {
    const uint32_t kind = below(16);
    if (kind < 9) return last_ = kInteresting[below(static_cast<uint32_t>(kInteresting.size()))];
    if (kind < 11) return last_;
    if (kind < 13) return last_ = below(0x80);
    const char32_t c = kind < 14 ? below(0x3100) : kind < 15 ? below(0x20000) : below(kCodePoints);
    return c >= 0xD800 && c < 0xE000 ? U' ' : c;
  }
  std::mt19937 random_;
  char32_t last_ = U'a';
};

using Views = std::vector<std::string_view>;

void expect_the_same_pieces(PieceScanner scanner, std::string_view pattern, SplitBehavior behavior) {
  ASSERT_NE(scanner, nullptr);
  const Split fast(scanner), slow(Pattern::regex(pattern, "test"), behavior, false);
  RandomText random(static_cast<uint32_t>(pattern.size()));
  Views expected, found;
  for (int i = 0; i < kStrings; ++i) {
    const std::string text = random.next();
    expected.clear();
    found.clear();
    slow.each(text, [&](std::string_view piece) { expected.push_back(piece); });
    fast.each(text, [&](std::string_view piece) { found.push_back(piece); });
    ASSERT_EQ(found, expected) << pattern << "\n" << text;
  }
}

TEST(FastSplitters, CutLikePcre2) {
  EXPECT_GE(known_patterns().size(), 11u);
  for (const std::string_view pattern : known_patterns())
    expect_the_same_pieces(known_scanner(pattern), pattern, SplitBehavior::kIsolated);
}

TEST(FastSplitters, CutDigitsLikePcre2) {
  constexpr std::string_view kNumbers = "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]";
  expect_the_same_pieces(digit_scanner(true), kNumbers, SplitBehavior::kIsolated);
  expect_the_same_pieces(digit_scanner(false), kNumbers, SplitBehavior::kContiguous);
}

TEST(FastSplitters, PatternsMayHoldTheLineEndsThemselves) {
  for (const std::string_view pattern : known_patterns()) {
    std::string plain(pattern);
    for (size_t at; (at = plain.find("\\r")) != std::string::npos;) plain.replace(at, 2, "\r");
    for (size_t at; (at = plain.find("\\n")) != std::string::npos;) plain.replace(at, 2, "\n");
    EXPECT_EQ(known_scanner(plain), known_scanner(pattern)) << pattern;
  }
  EXPECT_EQ(known_scanner("\\p{N}{1,4}"), nullptr);
}

TEST(FastSplitters, LongRunsTakeLittleTime) {
  for (const std::string_view pattern : known_patterns())
    for (const char* part : {"a", " ", "1", "'", "\u4e00", "\u0301", "\U000F0000"}) {
      std::string text;
      for (int i = 0; i < 100'000; ++i) text += part;
      size_t size = 0;
      Split(known_scanner(pattern)).each(text, [&](std::string_view piece) { size += piece.size(); });
      EXPECT_EQ(size, text.size());
    }
}

// Every code point, also in the planes that are taken as not assigned.
TEST(CharacterClasses, AreThoseOfPatterns) {
  constexpr std::pair<const char*, unsigned> kSets[] = {{"[\\p{Lu}\\p{Lt}]+", kUpper},
                                                        {"\\p{Ll}+", kLower},
                                                        {"[\\p{Lm}\\p{Lo}]+", kCaseless},
                                                        {"\\p{M}+", kMark},
                                                        {"\\p{N}+", kNumber},
                                                        {"[\\p{P}\\p{S}]+", kSymbol},
                                                        {"\\s+", kSpace},
                                                        {"[\\r\\n]+", kNewline}};
  std::string text;
  std::vector<char32_t> characters;
  for (char32_t c = 0; c < kCodePoints; ++c)
    if (c < 0xD800 || c >= 0xE000) {
      append_utf8(text, c);
      characters.push_back(c);
    }
  for (const auto& [set, flag] : kSets) {
    const Pattern pattern = Pattern::regex(set, "test");
    auto match = pattern.find(text, 0);
    size_t at = 0, wrong = 0;
    for (const char32_t c : characters) {
      if (match && at == match->end) match = pattern.find(text, at);
      wrong += ((character_classes()[c] & flag) != 0) != (match && at >= match->begin);
      at += utf8_size(text[at]);
    }
    EXPECT_EQ(wrong, 0u) << set;
  }
}

}  // namespace
}  // namespace temper::tokenizers
