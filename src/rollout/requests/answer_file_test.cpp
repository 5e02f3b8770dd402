#include "rollout/requests/answer_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace temper::rollout {
namespace {

TEST(AnswerFile, ContinuesBehindATornLine) {
  const TemporaryDirectory folder;
  const std::string path = folder / "out.jsonl";
  {
    AnswerFile file(path);
    file.write(0, 0, "a", {{"text", "x"}});
    file.write(0, 1, "a", {{"text", "y"}});
    EXPECT_EQ(file.size(), 2);
  }
  const std::string whole = read_file(path);
  for (size_t size = whole.size(); size > whole.find('\n') + 1; --size) {
    write_file(path, std::string_view(whole).substr(0, size));
    AnswerFile file(path);
    EXPECT_TRUE(file.has(0, 0, "a"));
    EXPECT_EQ(file.has(0, 1, "a"), size == whole.size()) << size;
    if (!file.has(0, 1, "a")) file.write(0, 1, "a", {{"text", "y"}});
    EXPECT_EQ(file.size(), 2);
    EXPECT_EQ(read_file(path), whole);
  }
}

TEST(AnswerFile, RefusesAnswersToSomethingElse) {
  const TemporaryDirectory folder;
  const std::string path = folder / "out.jsonl";
  AnswerFile(path).write(3, 0, "a", {});
  EXPECT_THROW(AnswerFile(path).has(3, 0, "b"), Error);
  write_file(path, "{\"text\": 1}\n");
  EXPECT_THROW(AnswerFile{path}, Error);
}

}  // namespace
}  // namespace temper::rollout
