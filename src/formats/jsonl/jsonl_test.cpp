#include <numeric>

#include "base/hash.h"
#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

using Rows = std::vector<std::string>;

TEST(Jsonl, TakesLinesAsPeopleWriteThem) {
  const WrittenFile file("\xEF\xBB\xBF{\"n\":0}\r\n\r\n \t \n  {\"n\":1} \n\n{\"n\":2}");
  const auto rows = file.open();
  EXPECT_EQ(rows_of(*rows), (Rows{"{\"n\":0}", "  {\"n\":1} ", "{\"n\":2}"}));
  EXPECT_EQ(rows->place(0), file.path() + ":1");
  EXPECT_EQ(rows->place(1), file.path() + ":4");
  EXPECT_EQ(rows->place(2), file.path() + ":6");
  EXPECT_EQ(rows->bytes(), 37);
  EXPECT_EQ(rows->hash(), hash_file(file.path()));
}

TEST(Jsonl, FilesWithoutRows) {
  for (const char* content : {"", "\n", "\r\n \n\t", "\xEF\xBB\xBF", "\xEF\xBB\xBF\n"})
    EXPECT_EQ(WrittenFile(content).open()->size(), 0) << content;
}

TEST(Jsonl, ErrorsCountLinesAndColumnsOfTheFile) {
  const WrittenFile file("{\"a\":1}\n\n  {\"a\": }\n{\"a\":1,\"a\":2}\n{\"a\":\n{\"b\":1}");
  const auto rows = file.open();
  EXPECT_EQ(rows->parse(0), Json(Json::Object{{"a", 1}}));
  expect_has(error_of([&] { rows->parse(1); }), fmt::format("[{}:3:9] not valid JSON: ", file.path()));
  expect_has(error_of([&] { rows->parse(2); }),
             fmt::format("[{}:4:14] not valid JSON: key 'a' occurs twice in one object", file.path()));
  expect_has(error_of([&] { rows->parse(3); }), fmt::format("[{}:5:", file.path()));
  EXPECT_EQ(error_of([&] { rows->text(9); }, ErrorKind::kDefect).empty(), false);
}

// Rows of many lengths, so that they begin and end everywhere in the blocks of the first pass.
TEST(Jsonl, LongRowsAndManyBlocks) {
  std::string content;
  std::vector<int64_t> lines;
  Rows expected;
  for (int64_t line = 1; content.size() < (size_t{9} << 20); ++line) {
    if (line % 7 == 0) {
      content += "\n";
      continue;
    }
    const size_t length = line % 100 == 0 ? 700000 : static_cast<size_t>(line * 37 % 1500);
    expected.push_back(fmt::format(R"({{"line": {}, "text": "{}"}})", line, std::string(length, 'x')));
    lines.push_back(line);
    content += expected.back() + "\n";
  }
  expected.push_back("{\"text\": \"" + std::string(3 << 20, 'y') + "\"}");
  content += expected.back();
  const WrittenFile file(content);
  const auto rows = file.open();
  EXPECT_EQ(rows_of(*rows), expected);
  EXPECT_EQ(rows->hash(), hash_file(file.path()));
  for (size_t row = 0; row < lines.size(); ++row)
    ASSERT_EQ(rows->place(static_cast<int64_t>(row)), fmt::format("{}:{}", file.path(), lines[row]));
}

}  // namespace
}  // namespace temper::formats
