#include "base/hash.h"
#include "formats/json/scanner.h"
#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

using Rows = std::vector<std::string>;

Rows rows_in(const std::string& content) { return rows_of(*WrittenFile(content).open()); }

TEST(JsonFormat, ARowIsNotTakenForWhatHoldsRows) {
  for (const char* text :
       {R"({"text": "a", "comments": [{"text": "b"}]})",
        "{\n \"text\": \"a\",\n \"comments\": [{\"text\": \"b\"}]\n}\n",
        "{\n \"tools\": [{}],\n \"documents\": [{}],\n \"messages\": [{\"role\": \"user\"}]\n}\n"}) {
    const WrittenFile file(text);
    EXPECT_EQ(file.open()->size(), 1) << text;
  }
  const WrittenFile holder(R"({"version": "1", "data": [{"text": "a"}, {"text": "b"}]})");
  EXPECT_EQ(holder.open()->size(), 2);
}

TEST(JsonFormat, BreaksInsideAValueThatIsLong) {
  std::string text = "[\n{\"text\": [";
  for (int i = 0; i < 1'500'000; ++i) text += "1,\n";
  const WrittenFile file(text + "}]}\n]");
  EXPECT_NE(error_of([&] { file.open(); }).find(":1500002:"), std::string::npos)
      << error_of([&] { file.open(); });
}

TEST(JsonFormat, ArraysOnOneLineAndOnMany) {
  const Rows rows = {R"({"a":"]}, {\"[" , "b":[[{"c":{}}],[]]})", R"({"a": "\\"})", "{ }"};
  EXPECT_EQ(rows_in("[" + rows[0] + "," + rows[1] + "," + rows[2] + "]"), rows);
  EXPECT_EQ(rows_in("\xEF\xBB\xBF \r\n[\n  " + rows[0] + ",\r\n" + rows[1] + "\n ,\n" + rows[2] + "\n]\n\n"),
            rows);
  EXPECT_EQ(rows_in(" [ ] "), Rows{});
  EXPECT_EQ(rows_in("[{\n\"a\":\n1}\n]"), Rows{"{\n\"a\":\n1}"});
}

TEST(JsonFormat, ObjectsThatHoldTheRows) {
  EXPECT_EQ(rows_in(R"({"version": [1, 2], "data": [{"a": 1}, {"a": 2}], "more": {"x": [{}]}})"),
            (Rows{R"({"a": 1})", R"({"a": 2})"}));
  EXPECT_EQ(rows_in("{\n  \"data\": [\n    {\"a\": 1},\n    {\"a\": 2}\n  ]\n}\n"),
            (Rows{R"({"a": 1})", R"({"a": 2})"}));
  EXPECT_EQ(rows_in("{\"data\": [{\"a\": 1}\n,{\"a\": 2}\n]}"), (Rows{R"({"a": 1})", R"({"a": 2})"}));
}

// One conversation is a row, alone in its file or not; a list of other things is not what it seems.
TEST(JsonFormat, ObjectsThatAreRows) {
  const std::string chat = R"({"tools": [{"type": "f"}], "messages": [{"content": "x", "role": "user"}]})";
  const std::string turns = R"({"conversations": [{"from": "human", "value": "x"}]})";
  EXPECT_EQ(rows_in(chat), Rows{chat});
  EXPECT_EQ(rows_in(turns + "\n\n"), Rows{turns});
  EXPECT_EQ(rows_in("{\"data\": [{}]}\n{\"data\": [{}]}\n"), (Rows{"{\"data\": [{}]}", "{\"data\": [{}]}"}));
  const std::string spread = "{\n\"messages\": [\n{\"role\": \"user\"}]\n}";
  EXPECT_EQ(rows_in(spread), Rows{spread});
  EXPECT_EQ(rows_in("{\n\"a\": [{}]\n}\n{\n\"b\": [{}]}\n"), (Rows{"{\n\"a\": [{}]\n}", "{\n\"b\": [{}]}"}));
  EXPECT_EQ(rows_in("{\n\"text\": \"x\"\n}"), Rows{"{\n\"text\": \"x\"\n}"});
}

// A broken first row of JSONL stays one row of many.
TEST(JsonFormat, BrokenLinesAreNotDocuments) {
  EXPECT_EQ(rows_in("{\"a\": \"no end\n{\"b\": 1}\n").size(), 2U);
  EXPECT_EQ(rows_in("{\"a\": 1\n{\"b\": 1}\n").size(), 2U);
  EXPECT_EQ(rows_in("{\"a\": 1}}\n{\"b\": 1}\n").size(), 2U);
  EXPECT_EQ(rows_in("text\n{\"b\": 1}\n").size(), 2U);
}

TEST(JsonFormat, PlacesAndErrorsOfRows) {
  const WrittenFile file("[\n  {\"a\": 1},\n  {\"a\": 1,\n   \"b\": tru},\n\n  {\"a\": x}]");
  const std::string broken = error_of([&] { file.open(); });
  expect_has(broken, fmt::format("[{}:6:9] not valid JSON: a character that may only stand in a string",
                                 file.path()));
  const WrittenFile other("[\n  {\"a\": 1},\n  {\"a\": 1,\n   \"b\": tru},\n\n  {\"a\": }]");
  const auto rows = other.open();
  EXPECT_EQ(rows->place(1), other.path() + ": row 2 (line 3)");
  EXPECT_EQ(rows->place(2), other.path() + ": row 3 (line 6)");
  expect_has(error_of([&] { rows->parse(1); }), fmt::format("[{}:4:9] not valid JSON: ", other.path()));
  expect_has(error_of([&] { rows->parse(2); }), fmt::format("[{}:6:9] not valid JSON: ", other.path()));
  EXPECT_EQ(rows->hash(), hash_file(other.path()));
}

TEST(JsonFormat, BrokenFilesNameLineAndColumn) {
  const auto expect_error = [](const std::string& content, const std::string& part) {
    const WrittenFile file(content);
    expect_has(error_of([&] { file.open(); }), fmt::format("[{}:{}", file.path(), part));
  };
  expect_error("[{\"a\": 1},\n {\"b\": [2",
               "2:10] not valid JSON: the file ends here, inside a value; it may be cut off");
  expect_error("[{\"a\": 1},\n {\"b\": \"2]}", "2:8] not valid JSON: this string has no end");
  expect_error("[{\"a\": 1}\n {\"b\": 2}]", "2:2] not valid JSON: expected , or ] after row 1");
  expect_error("[{\"a\": 1},]", "1:11] not valid JSON: row 2 is not an object");
  expect_error("[{\"a\": 1}, \"b\"]", "1:12] not valid JSON: row 2 is not an object");
  expect_error("[{\"a\": [1}]", "1:10] not valid JSON: expected ] here");
  expect_error("[{}]\n[{}]", "2:1] not valid JSON: more text after the rows");
  expect_error(std::string("[{}]\n\0\0", 7), "2:1] not valid JSON: more text after the rows");
  expect_error("{\n\"a\": [{}],\n\"b\": [{}]}", "3:11] not valid JSON: \"a\" and \"b\" are lists of objects");
  expect_error("{\n\"a\" 1}", "2:5] not valid JSON: expected : after the key \"a\"");
  expect_error("[" + std::string(600, '['), "1:2] not valid JSON: row 1 is not an object");
  expect_error("[{\"a\":" + std::string(600, '['), "1:518] not valid JSON: more than 512 levels deep");
  expect_error("[", "1:2] not valid JSON");
}

// Escapes and ends of strings fall on every place in the blocks of the first pass.
TEST(JsonFormat, LargeArrays) {
  Rows expected;
  std::string content = "[";
  for (size_t i = 0; content.size() < (size_t{5} << 20); ++i) {
    std::string text(i * 7919 % 3001, i % 3 == 0 ? '[' : 'x');
    for (size_t j = i % 5; j < i % 40; ++j) text += R"(\"\\)";
    expected.push_back(R"({"text": ")" + text + "\"}");
    content += (i == 0 ? "" : i % 2 ? "," : "\n, \n") + expected.back();
  }
  expected.push_back("{\"text\": \"" + std::string(3 << 20, '{') + "\"}");
  content += "," + expected.back() + "]";
  const WrittenFile file(content);
  const auto rows = file.open();
  EXPECT_EQ(rows_of(*rows), expected);
  EXPECT_EQ(rows->hash(), hash_file(file.path()));
  const size_t last = content.size() - expected.back().size() - 1;
  EXPECT_EQ(rows->place(rows->size() - 1),
            fmt::format("{}: row {} (line {})", file.path(), expected.size(),
                        1 + std::count(content.begin(), content.begin() + last, '\n')));
}

// Whatever stands in a file, the rows are found or an Error says why not.
TEST(JsonFormat, EveryCutOfAFileIsAnErrorOrRows) {
  const std::string content =
      "{\"v\": [1], \"data\": [\n{\"a\": \"\\\"]\", \"b\": {\"c\": [null, 1e5]}},\n{}\n]}";
  for (size_t size = 0; size < content.size(); ++size) {
    const WrittenFile file(content.substr(0, size));
    try {
      file.open();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << size;
    }
  }
}

}  // namespace
}  // namespace temper::formats
