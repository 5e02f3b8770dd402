#include "base/json/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/files.h"

namespace temper {
namespace {

std::string parse_error(std::string_view text) {
  try {
    Json::parse(text, "test.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, RoundTripKeepsOrderAndNumbers) {
  const std::string text = R"({"b": 1, "a": [1.0, 1e-06, true, null, "\u00e9\n"], "z": {}})";
  EXPECT_EQ(Json::parse(text, "t").dump(),
            "{\"b\": 1, \"a\": [1.0, 1e-06, true, null, \"é\\n\"], \"z\": {}}");
}

TEST(Json, DumpEscapesForAscii) {
  EXPECT_EQ(Json(std::string("é😀\x01")).dump(-1, true), R"("\u00e9\ud83d\ude00\u0001")");
}

TEST(Json, FormatsFloatsAsPython) {
  EXPECT_EQ(format_double(1000000.0), "1000000.0");
  EXPECT_EQ(format_double(1e16), "1e+16");
  EXPECT_EQ(format_double(0.0001), "0.0001");
  EXPECT_EQ(format_double(0.00001), "1e-05");
  EXPECT_EQ(format_double(-0.1), "-0.1");
}

// A loop over what a value holds that is gone before the loop begins: it handed it over.
TEST(Json, AValueThatIsAboutToGoHandsOverWhatItHolds) {
  static_assert(std::is_same_v<decltype(Json::parse("", "")), Json>);
  static_assert(std::is_same_v<decltype(Json().as_object()), Json::Object>);
  static_assert(std::is_same_v<decltype(Json().as_array()), Json::Array>);
  static_assert(std::is_same_v<decltype(Json().as_string()), std::string>);
  std::string names;
  for (const auto& [name, value] : Json::parse(R"({"a": 1, "b": 2})", "t").as_object()) names += name;
  for (const Json& item : Json::parse(R"(["c", "d"])", "t").as_array()) names += item.as_string();
  EXPECT_EQ(names + Json("e").as_string(), "abcde");
  EXPECT_THROW(Json(1).as_object(), Error);
}

// Growing by halves it would take more than half as much again.
TEST(Json, ALongStringWithEscapesTakesItsOwnSize) {
  std::string text = "\"";
  while (text.size() < (size_t{9} << 20)) text += "some words in a line\\n";
  const Json parsed = Json::parse(text + "\"", "t");
  const std::string& value = parsed.as_string();
  EXPECT_EQ(std::count(value.begin(), value.end(), '\n'), std::count(text.begin(), text.end(), '\\'));
  EXPECT_LT(value.capacity(), text.size() + 1000);
  EXPECT_NE(parse_error(text).find("a string does not end"), std::string::npos);
}

// Each escape is looked at once: code in a string has one every few letters.
TEST(Json, ALongStringOfEscapesTakesLinearTime) {
  std::string text = "\"" + std::string(size_t{1} << 20, 'a');
  while (text.size() < (size_t{4} << 20)) text += "\\\"\\n{ ";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_GT(Json::parse(text + "\"", "t").as_string().size(), size_t{2} << 20);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Json, RefusesDuplicateKeysInSmallAndLargeObjects) {
  EXPECT_NE(parse_error(R"({"a": 1, "a": 2})").find("'a' occurs twice"), std::string::npos);
  std::string large = "{";
  for (int i = 0; i < 100; ++i) large += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_NE(parse_error(large + "\"k50\": 1}").find("'k50' occurs twice"), std::string::npos);
  EXPECT_EQ(parse_error(large + "\"k100\": 1}"), "");
}

TEST(Json, FilesThatAreNoneSayWhatToDo) {
  const TemporaryDirectory folder;
  const auto error = [&](std::string_view text) -> std::string {
    write_file(folder / "config.json", text);
    try {
      Json::parse_file(folder / "config.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string file = "[" + (folder / "config.json");
  EXPECT_EQ(error(""), file + "] is empty, expected JSON; download or write it again");
  EXPECT_EQ(error("version https://git-lfs.github.com/spec/v1\noid sha256:1\n"),
            file + "] is a Git LFS pointer, expected the file itself; run `git lfs pull` in its folder");
  EXPECT_EQ(
      error("\xff\xfe{"),
      file + ":1:1] not valid JSON: the text is not UTF-8; write the file as UTF-8, or download it again");
  EXPECT_EQ(error("{}"), "no error");
}

TEST(Json, NamesLineAndColumn) {
  EXPECT_EQ(parse_error("{\n  \"a\": ?\n}").rfind("[test.json:2:8] not valid JSON", 0), 0u);
  EXPECT_NE(parse_error("{\"a\": 1} x"), "");
  EXPECT_NE(parse_error(""), "");
  EXPECT_NE(parse_error("\"\xff\""), "");
}

TEST(Json, ReadsStrings) {
  EXPECT_EQ(Json::parse(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00")", "t").as_string(),
            "\"\\/\b\f\n\r\tAé😀");
  for (const char* bad : {R"("\ud83d")", R"("\ud83dx")", R"("\ud83d\u0041")", R"("\ude00")", R"("\x")",
                          R"("\u12")", R"("\u12g4")", "\"a\nb\"", "\"a", "\"\xED\xA0\x80\"", "\"\xC3\""})
    EXPECT_NE(parse_error(bad), "") << bad;
}

TEST(Json, ReadsNumbers) {
  EXPECT_EQ(Json::parse("-9223372036854775808", "t").as_int(), INT64_MIN);
  EXPECT_EQ(Json::parse("-0", "t").as_int(), 0);
  EXPECT_FALSE(Json::parse("9223372036854775808", "t").is_int());
  EXPECT_EQ(Json::parse("9223372036854775808", "t").as_double(), 9223372036854775808.0);
  EXPECT_EQ(Json::parse("1.5E+2", "t").as_double(), 150);
  EXPECT_EQ(Json::parse("1e-400", "t").as_double(), 0);
  for (const char* bad :
       {"01", "-", "+1", ".5", "1.", "1e", "1e+", "1e400", "0x1", "NaN", "Infinity", "- 1", "1.e2"})
    EXPECT_NE(parse_error(bad), "") << bad;
}

TEST(Json, ReadsStructure) {
  EXPECT_EQ(Json::parse("\xEF\xBB\xBF [ ] ", "t").dump(), "[]");
  EXPECT_EQ(Json::parse("{ \"a\" : [ 1 , { } ] }", "t").dump(), R"({"a": [1, {}]})");
  for (const char* bad : {"[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{,}", "[",
                          "{", "]", "tru", "nul", "truex", "[1]]", " ", "/**/1", "'a'", "\xEF\xBB"})
    EXPECT_NE(parse_error(bad), "") << bad;
}

TEST(Json, QuotesWhatItDidNotExpect) {
  for (const auto& [text, problem] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a": NaN})",
            ":7] not valid JSON: NaN is not a number in JSON; write null, or a finite number"},
           {"[-Infinity]",
            ":3] not valid JSON: Infinity is not a number in JSON; write null, or a finite number"},
           {"[True, 1]", ":2] not valid JSON: unexpected text 'True', a value was expected here"},
           {"[1,]", ":4] not valid JSON: unexpected text ']', a value was expected here"},
           {"[tru]", ":2] not valid JSON: unexpected text 'tru', a value was expected here"},
           {"{\"a\":", ":6] not valid JSON: the text ends early, a value was expected here"},
           {"{} NaN, 1", ":4] not valid JSON: unexpected text 'NaN' after the value"},
           {"[1]]", ":4] not valid JSON: unexpected text ']' after the value"},
           {"- a: 1", ":1] not valid JSON: unexpected text '-', a value was expected here"},
           {"{'a': 1}", ":2] not valid JSON: expected a key in double quotes"}})
    EXPECT_TRUE(parse_error(text).ends_with(problem)) << parse_error(text);
}

TEST(Json, RefusesDeepNesting) {
  EXPECT_NE(parse_error(std::string(100000, '[')).find("levels deep"), std::string::npos);
}

TEST(Json, TypedAccessNamesWhatWasFound) {
  try {
    Json("x").as_int();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "expected an integer, found a string");
  }
}

}  // namespace
}  // namespace temper
