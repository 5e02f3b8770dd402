#include "recipes/setup/origin.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/hash.h"

namespace temper::recipes {
namespace {

TEST(Origin, ADifferenceNamesTheKeysThatAreKnown) {
  const Json was = Json::Object{{"a", 1}, {"b", 2}}, is = Json::Object{{"a", 1}, {"b", 3}, {"newer", 4}};
  EXPECT_EQ(difference_of_origin("config.json", was, is), "config.json (b: 2, now 3)");
  EXPECT_EQ(difference_of_origin("config.json", is, is), "");
  EXPECT_EQ(difference_of_origin("tokenizer.json", "hash", "another"), "tokenizer.json");
  EXPECT_EQ(difference_of_origin("chat_template.jinja", nullptr, "hash"), "chat_template.jinja");
}

// States of earlier versions have config.json's hash.
TEST(Origin, AHashOfTheWholeFileIsCompared) {
  const TemporaryDirectory folder;
  const std::string file = folder / "config.json";
  write_file(file, "{}");
  const Json is = Json::Object{{"a", 1}};
  EXPECT_EQ(difference_of_origin(file, hash_file(file), is), "");
  EXPECT_EQ(difference_of_origin(file, "another", is), file);
}

}  // namespace
}  // namespace temper::recipes
