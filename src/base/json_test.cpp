#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

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

TEST(Json, RefusesDuplicateKeysInSmallAndLargeObjects) {
  EXPECT_NE(parse_error(R"({"a": 1, "a": 2})").find("'a' occurs twice"), std::string::npos);
  std::string large = "{";
  for (int i = 0; i < 100; ++i) large += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_NE(parse_error(large + "\"k50\": 1}").find("'k50' occurs twice"), std::string::npos);
  EXPECT_EQ(parse_error(large + "\"k100\": 1}"), "");
}

TEST(Json, NamesLineAndColumn) {
  EXPECT_EQ(parse_error("{\n  \"a\": ?\n}").rfind("[test.json:2:8] not valid JSON", 0), 0u);
  EXPECT_NE(parse_error("{\"a\": 1} x"), "");
  EXPECT_NE(parse_error(""), "");
  EXPECT_NE(parse_error("\"\xff\""), "");
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
