#include "formats/paths.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

class Paths : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"b.jsonl", "a.jsonl", "c.json.gz", "d.parquet", "notes.txt", ".hidden.jsonl", "e[1].json"})
      write_file(folder_ / name, "");
    make_directories(folder_ / "more.jsonl");
    make_directories(folder_ / "sub");
    make_directories(folder_ / "texts");
    for (const char* name : {"texts/b.TXT.gz", "texts/a.txt", "texts/notes.md"})
      write_file(folder_ / name, "");
    write_file(join_path(folder_ / "sub", "a.jsonl"), "");
  }
  std::vector<std::string> at(const std::vector<std::string>& names) const {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(folder_ / name);
    return paths;
  }
  TemporaryDirectory folder_;
};

TEST_F(Paths, PatternsFoldersAndPlainNames) {
  EXPECT_EQ(expand_paths(at({"*.jsonl"})), at({"a.jsonl", "b.jsonl"}));
  EXPECT_EQ(expand_paths(at({"[bc].json*", "?.jsonl"})), at({"b.jsonl", "c.json.gz", "a.jsonl", "b.jsonl"}));
  EXPECT_EQ(expand_paths(at({"*/a.jsonl"})), at({"sub/a.jsonl"}));
  EXPECT_EQ(expand_paths(at({"e[1].json"})), at({"e[1].json"}));
  EXPECT_EQ(expand_paths({folder_.path()}),
            at({"a.jsonl", "b.jsonl", "c.json.gz", "d.parquet", "e[1].json"}));
  EXPECT_EQ(expand_paths({folder_ / "texts"}), at({"texts/a.txt", "texts/b.TXT.gz"}));
  EXPECT_EQ(expand_paths(at({"notes.txt", "notes.txt"})), at({"notes.txt", "notes.txt"}));
  EXPECT_TRUE(expand_paths({}).empty());
}

TEST_F(Paths, NothingMatchedNamesWhatIsThere) {
  EXPECT_EQ(error_of([&] { expand_paths(at({"b.json"})); }),
            fmt::format("[{}] no such file; did you mean {}?", folder_ / "b.json", folder_ / "b.jsonl"));
  expect_has(error_of([&] { expand_paths(at({"train-*.json"})); }), "no file matches; ");
  expect_has(error_of([&] { expand_paths(at({"train-*.json"})); }), "holds .hidden.jsonl, a.jsonl, b.jsonl");
  expect_has(error_of([&] { expand_paths(at({"none/deep/*.jsonl"})); }), folder_.path() + " holds ");
  expect_has(error_of([&] { expand_paths(at({"**/a.jsonl"})); }), "** is not supported");
  EXPECT_EQ(
      error_of([&] { expand_paths({"HuggingFaceH4/ultrachat_200k"}); }),
      "[HuggingFaceH4/ultrachat_200k] no such file; nothing is downloaded: a data set of that name on the "
      "Hugging Face Hub comes with 'hf download HuggingFaceH4/ultrachat_200k --repo-type dataset --local-dir "
      "HuggingFaceH4/ultrachat_200k'");
  EXPECT_EQ(error_of([&] { expand_paths({"chats/train.jsonl.gz"}); }).find("Hub"), std::string::npos);
  make_directories(folder_ / "empty");
  expect_has(error_of([&] { expand_paths(at({"empty"})); }), "is empty");
}

}  // namespace
}  // namespace temper::formats
