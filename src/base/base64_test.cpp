#include "base/base64.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper {
namespace {

// RFC 4648, section 10.
TEST(Base64, TextsOfTheStandard) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"", ""},
                                                                  {"f", "Zg=="},
                                                                  {"fo", "Zm8="},
                                                                  {"foo", "Zm9v"},
                                                                  {"foob", "Zm9vYg=="},
                                                                  {"fooba", "Zm9vYmE="},
                                                                  {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(encode_base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
}

TEST(Base64, EveryByteComesBack) {
  std::string bytes;
  for (int length = 0; length < 300; ++length) {
    EXPECT_EQ(decode_base64(encode_base64(bytes)), bytes);
    bytes += static_cast<char>(length * 37);
  }
}

TEST(Base64, LinesAndMissingPaddingAreRead) {
  EXPECT_EQ(decode_base64("Zm9v\r\nYm\nFy\n"), "foobar");
  EXPECT_EQ(decode_base64("Zm9vYg"), "foob");
}

TEST(Base64, WhatDoesNotBelongIsRefused) {
  EXPECT_EQ(error_of([] { decode_base64("Zm9-"); }),
            "character 4 of the base64 is '-', expected a letter, a digit, + or /");
  expect_has(error_of([] { decode_base64("Zg==Zg=="); }), "character 5 of the base64 is 'Z'");
  expect_has(error_of([] { decode_base64("Zm9vY"); }), "has 5 digits, one more than a multiple of 4");
}

}  // namespace
}  // namespace temper
