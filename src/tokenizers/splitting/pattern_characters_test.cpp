// Which characters patterns match, as recorded from the `tokenizers` library (0.23): how many, and their sum.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tokenizers/splitting/split_kinds.h"
#include "tokenizers/text/pattern.h"
#include "tokenizers/unicode/code_point_table.h"

namespace temper::tokenizers {
namespace {

struct Recorded {
  const char* name;
  uint64_t count, sum;
};

constexpr Recorded kPatterns[] = {{R"(\p{L})", 141028, 15240929258},
                                  {R"(\p{Lu})", 1858, 86924357},
                                  {R"(\p{Ll})", 2258, 104713123},
                                  {R"(\p{Lm})", 404, 19538368},
                                  {R"(\p{Lo})", 136477, 15029532896},
                                  {R"(\p{M})", 2501, 316771473},
                                  {R"(\p{N})", 1911, 110651895},
                                  {R"(\p{Nd})", 760, 39891450},
                                  {R"(\p{No})", 915, 57560662},
                                  {R"(\p{P})", 855, 28835015},
                                  {R"(\p{Pd})", 27, 635487},
                                  {R"(\p{S})", 8514, 620170451},
                                  {R"(\p{So})", 7376, 603692227},
                                  {R"(\p{Sm})", 950, 11722907},
                                  {R"(\p{Cf})", 170, 92312063},
                                  {R"(\p{C})", 957236, 604189375390},
                                  {R"(\p{Cn})", 819533, 466275017146},
                                  {R"(\P{C})", 154828, 16317499490},
                                  {R"([^\p{Cn}])", 292531, 154231857734},
                                  {R"(\P{L})", 971036, 605265945622},
                                  {R"([^\s\p{L}\p{N}])", 969100, 605155152141},
                                  {R"(\w)", 144671, 15621630088},
                                  {R"([\w])", 144665, 15621628979},
                                  {R"(\W)", 967393, 604885244792},
                                  {R"([[:alpha:]])", 142759, 15314421907},
                                  {R"([[:alnum:]])", 143519, 15354313357},
                                  {R"([[:punct:]])", 9369, 649005466},
                                  {R"([[:^alpha:]])", 969305, 605192452973},
                                  {R"(\p{Alphabetic})", 142759, 15314421907},
                                  {R"(\p{Uppercase})", 1978, 97237165},
                                  {R"(\p{Lowercase})", 2569, 117919901},
                                  {R"(\p{Ideographic})", 106477, 13336533671},
                                  {R"(\p{Emoji})", 1431, 162209198},
                                  {R"(\p{Extended_Pictographic})", 3537, 415750984},
                                  {R"(\p{Han})", 99030, 12573883150},
                                  {R"(\p{Latin})", 1487, 27421744},
                                  {R"(\p{Arabic})", 1373, 71326622},
                                  {R"(\p{Cyrillic})", 508, 12793574},
                                  {R"(\p{Kannada})", 91, 295976},
                                  {R"(\P{Han})", 1013034, 607932991730},
                                  {R"([\p{Lu}\p{Lo}&&[^\p{Han}]])", 39653, 2547108983}};

template <class Belongs>
void expect_characters(const Recorded& recorded, const Belongs& belongs) {
  uint64_t count = 0, sum = 0;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    if (!belongs(text)) continue;
    ++count;
    sum += c;
  }
  EXPECT_EQ(count, recorded.count) << recorded.name;
  EXPECT_EQ(sum, recorded.sum) << recorded.name;
}

TEST(PatternCharacters, AreThoseOfTheLibrary) {
  for (const Recorded& recorded : kPatterns) {
    const Pattern pattern = Pattern::regex(recorded.name, "test");
    expect_characters(recorded, [&](const std::string& text) { return pattern.find(text, 0).has_value(); });
  }
}

std::vector<std::string_view> pieces_of(const Split& split, std::string_view text) {
  std::vector<std::string_view> pieces;
  split.each(text, [&](std::string_view piece) { pieces.push_back(piece); });
  return pieces;
}

// Found by how they are cut next to themselves or next to letters.
TEST(PatternCharacters, OfDigitsPunctuationAndWordsAreThoseOfTheLibrary) {
  const auto kind = [](const char* type, const char* options) {
    return std::move(*read_split(type, Json::parse(options, "test"), "test"));
  };
  const Split digits = kind("Digits", R"({"individual_digits": true})"),
              punctuation = kind("Punctuation", "{}"), words = kind("Whitespace", "{}"),
              spaces = kind("WhitespaceSplit", "{}");
  const auto beside_letters = [](const Split& split, const std::string& text) {
    return pieces_of(split, "a" + text + "a").size();
  };
  expect_characters({"Digits", 1924, 111666371},
                    [&](const std::string& text) { return pieces_of(digits, text + text).size() == 2; });
  expect_characters({"Punctuation", 726, 20675981},
                    [&](const std::string& text) { return beside_letters(punctuation, text) == 3; });
  expect_characters({"Whitespace", 144667, 15621645388},
                    [&](const std::string& text) { return beside_letters(words, text) == 1; });
  expect_characters({"WhitespaceSplit", 1112039, 620506733294},
                    [&](const std::string& text) { return beside_letters(spaces, text) == 1; });
}

}  // namespace
}  // namespace temper::tokenizers
