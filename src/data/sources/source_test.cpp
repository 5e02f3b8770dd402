#include "data/sources/source.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

TEST(Source, ReadsRowsAcrossFilesAndLineEnds) {
  const TemporaryDirectory folder;
  write_file(folder / "a.jsonl", "\xEF\xBB\xBF{\"n\":0}\r\n\r\n  \n{\"n\":1}");
  write_file(folder / "empty.jsonl", "");
  write_file(folder / "b.jsonl", "\n{\"n\":2}\n{\"n\":3}\n\n");
  const Source source(
      {folder / "a.jsonl", folder / "empty.jsonl", folder / "b.jsonl", folder / "empty.jsonl"});
  ASSERT_EQ(source.size(), 4);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(source.row(i).at("n").as_int(), i);
  EXPECT_EQ(source.text(0), "{\"n\":0}");
  EXPECT_EQ(source.place(0), (folder / "a.jsonl") + ":1");
  EXPECT_EQ(source.place(1), (folder / "a.jsonl") + ":4");
  EXPECT_EQ(source.place(2), (folder / "b.jsonl") + ":2");
  EXPECT_EQ(source.place(3), (folder / "b.jsonl") + ":3");
}

TEST(Source, ErrorsNameFileAndLine) {
  const TemporaryDirectory folder;
  const std::string path = write_lines(folder, "a.jsonl", {"{}", "", "{\"a\": }", "{\"a\":1,\"a\":2}"});
  const Source source({path});
  EXPECT_TRUE(message_of([&] { source.row(1); }).starts_with(fmt::format("[{}:3:7] not valid JSON", path)))
      << message_of([&] { source.row(1); });
  EXPECT_TRUE(message_of([&] { source.row(2); }).starts_with(fmt::format("[{}:4", path)))
      << message_of([&] { source.row(2); });
  write_file(folder / "blank.jsonl", "\n \n");
  EXPECT_EQ(message_of([&] { Source({folder / "blank.jsonl"}); }),
            fmt::format("[{}] the file holds no rows; expected rows, such as one JSON object a line "
                        "(docs/data.md)",
                        folder / "blank.jsonl"));
  write_file(folder / "empty.jsonl", "");
  EXPECT_EQ(
      message_of([&] { Source({folder / "empty.jsonl"}); }),
      fmt::format("[{}] the file is empty; expected rows, such as one JSON object a line (docs/data.md)",
                  folder / "empty.jsonl"));
  for (const auto& [other, expected] : {std::pair{"empty.jsonl", "all of these files are empty"},
                                        std::pair{"blank.jsonl", "none of these files holds a row"}})
    EXPECT_EQ(message_of([&] {
                Source({folder / "empty.jsonl", folder / other});
              }),
              fmt::format("[{}, {}] {}; expected rows, such as one JSON object a line (docs/data.md)",
                          folder / "empty.jsonl", folder / other, expected));
  EXPECT_EQ(message_of([] { Source(std::vector<std::string>{}); }),
            "[data] no files given, expected at least one data file");
  EXPECT_NE(message_of([&] { Source({folder / "absent.jsonl"}); }).find("absent.jsonl"), std::string::npos);
}

TEST(Source, FingerprintIsOfTheContent) {
  const TemporaryDirectory folder;
  std::vector<std::string> lines(100000, R"({"text": "the same line many times"})");
  const Source first({write_lines(folder, "a.jsonl", lines)});
  const Source same({write_lines(folder, "elsewhere.jsonl", lines)});
  lines[50000][10] = 'X';
  const Source other({write_lines(folder, "b.jsonl", lines)});
  EXPECT_EQ(first.fingerprint(), same.fingerprint());
  EXPECT_NE(first.fingerprint(), other.fingerprint());
  EXPECT_EQ(first.fingerprint().at("rows").as_int(), 100000);
}

}  // namespace
}  // namespace temper::data
