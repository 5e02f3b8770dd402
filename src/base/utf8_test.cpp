#include "base/utf8.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text;
    append_utf8(text, value);
    const Utf8Step step = next_utf8(text);
    ASSERT_EQ(step.kind, Utf8Kind::kValid);
    ASSERT_EQ(step.value, value);
    ASSERT_EQ(step.size, text.size());
    ASSERT_EQ(last_utf8("a" + text), text);
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(replace_invalid_utf8("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98x"), "\uFFFDx");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(replace_invalid_utf8("h\u00e9\U0001F600"), "h\u00e9\U0001F600");
}

TEST(Utf8, TellsIncompleteFromInvalid) {
  EXPECT_EQ(next_utf8("\xF0\x9F\x98").kind, Utf8Kind::kIncomplete);
  EXPECT_EQ(next_utf8("\xF0\x9F\x98").size, 3u);
  EXPECT_EQ(next_utf8("\xF0\x41").kind, Utf8Kind::kInvalid);
  EXPECT_EQ(next_utf8("\x80").kind, Utf8Kind::kInvalid);
}

TEST(Utf8, ConvertsToUtf32AndBack) {
  EXPECT_EQ(to_utf32("\u00e9\U0001F600"), U"\u00e9\U0001F600");
  EXPECT_EQ(to_utf8(U"\u00e9\U0001F600"), "\u00e9\U0001F600");
}

}  // namespace
}  // namespace temper
