#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

std::vector<std::string> parsed(const RowFile& rows) {
  std::vector<std::string> out;
  for (int64_t row = 0; row < rows.size(); ++row) out.push_back(rows.parse(row).dump());
  return out;
}

std::vector<std::string> parsed(const std::string& content, const std::string& name = "rows.csv") {
  return parsed(*WrittenFile(content, name).open());
}

using Rows = std::vector<std::string>;

TEST(Csv, RecordsOfRfc4180) {
  EXPECT_EQ(parsed("text,label\r\naaa,1\r\n\"b \"\"bb\"\"\",\"2\r\n,3\"\r\n"),
            (Rows{R"({"text": "aaa", "label": "1"})", R"({"text": "b \"bb\"", "label": "2\r\n,3"})"}));
  // Without a last line end, with a byte order mark, blank lines, empty fields and a quote inside a field.
  EXPECT_EQ(parsed("\xEF\xBB\xBF\"a\",b\n\n,\n5\" wide,\"\"\n\n"),
            (Rows{R"({"a": "", "b": ""})", R"({"a": "5\" wide", "b": ""})"}));
  EXPECT_EQ(parsed("a\nlast"), Rows{R"({"a": "last"})"});
  EXPECT_EQ(parsed("a,b\r\n1,2\r"), Rows{R"({"a": "1", "b": "2"})"});
}

TEST(Csv, SeparatorsAreThoseOfTheHeader) {
  EXPECT_EQ(parsed("a\tb\n1,5\t\"x\ty\"\n", "rows.tsv"), Rows{R"({"a": "1,5", "b": "x\ty"})"});
  EXPECT_EQ(parsed("\"a,1\";b\n1,5;2\n"), Rows{R"({"a,1": "1,5", "b": "2"})"});
}

TEST(Csv, ATsvHasTabs) {
  EXPECT_EQ(parsed("text\nHello, world\n", "rows.tsv"), Rows{R"({"text": "Hello, world"})"});
  EXPECT_EQ(parsed("id, name\ttext\n1\t2\n", "rows.tsv"), Rows{R"({"id, name": "1", "text": "2"})"});
  EXPECT_EQ(parsed("\n\nprompt;completion\nhi;yo\n"), Rows{R"({"prompt": "hi", "completion": "yo"})"});
}

// Most TSV is written without quoting. A text that begins with a quote must not swallow the rows behind it.
TEST(Csv, ATsvWhoseQuotesMayBeTextIsRefused) {
  const auto refusal = [](const std::string& content) {
    const WrittenFile broken(content, "rows.tsv");
    const std::string error = error_of([&] { broken.open()->parse(0); });
    EXPECT_TRUE(error.starts_with("[" + broken.path())) << error;
    return error.substr(error.find("rows.tsv") + 8);
  };
  constexpr std::string_view kUnclear =
      "a quote is opened here and closed lines later, but each of these lines is a record of its own where "
      "quotes are text; write quotes in a text twice and the text in quotes, or, where they are meant to "
      "hold "
      "line ends, name the file .csv";
  EXPECT_EQ(refusal("text\tlabel\n\"Well\t1\nfine\t2\nBye\"\t3\n"),
            fmt::format(":2:1] not valid TSV: {}", kUnclear));
  EXPECT_EQ(refusal("label\ttext\r\n0\tno\r\n1\t\"Well\r\n2\tBye\"\r\n"),
            fmt::format(":3:3] not valid TSV: {}", kUnclear));
  EXPECT_EQ(refusal("text\n\"Well\nBye\"\n"), fmt::format(":2:1] not valid TSV: {}", kUnclear));
  EXPECT_EQ(
      refusal("text\tlabel\n\"Well\t1\n"),
      ":2:1] not valid TSV: this field begins with a quote and has no closing one; the file may be cut off");
  EXPECT_EQ(refusal("text\tlabel\n\"Well\" he said\t1\n"),
            ":2:7] not valid TSV: text after a closing quote; a quote inside a quoted field is written twice "
            "(\"\")");
  EXPECT_TRUE(refusal("text\tlabel\n\"Well\tBye\"\n").starts_with(":2] the record has 1 fields"));
  // Without quotes these lines are no records: the quotes hold line ends.
  EXPECT_EQ(parsed("text\tlabel\n\"Well\nBye\"\t3\n", "rows.tsv"),
            Rows{R"({"text": "Well\nBye", "label": "3"})"});
  EXPECT_EQ(parsed("label\ttext\n1\t\"Well\n\tdone()\n\nBye\"\n", "rows.tsv"),
            Rows{R"({"label": "1", "text": "Well\n\tdone()\n\nBye"})"});
  EXPECT_EQ(parsed("text\n\"Well\nBye\"\n"), Rows{R"({"text": "Well\nBye"})"});
}

// Time in proportion to the file: one look at each line end.
TEST(Csv, AMillionBlankLinesAreNoRows) {
  EXPECT_EQ(parsed("text\nhi\n" + std::string(1 << 20, '\n')), Rows{R"({"text": "hi"})"});
}

TEST(Csv, AColumnWithoutANameIsLeftOut) {
  EXPECT_EQ(parsed(",text\n0,one\n1,two\n"), (Rows{R"({"text": "one"})", R"({"text": "two"})"}));
}

TEST(Csv, PlacesAndErrorsHaveTheLineOfTheFile) {
  const WrittenFile file("text,label\n\"two\nlines\",1\none,2,3\n\xFF,4\n", "rows.csv");
  const auto rows = file.open();
  ASSERT_EQ(rows->size(), 3);
  EXPECT_EQ(rows->place(1), file.path() + ":4");
  EXPECT_EQ(rows->text(0), "\"two\nlines\",1");
  EXPECT_EQ(error_of([&] { rows->parse(1); }),
            fmt::format(
                "[{}:4] the record has 3 fields, the header has 2 (text, label); put a field that holds the "
                "separator or a line end in quotes",
                file.path()));
  EXPECT_EQ(error_of([&] { rows->parse(2); }),
            fmt::format("[{}:5] column 'text' is not UTF-8; write the file as UTF-8", file.path()));
  const auto refusal = [](const std::string& content) {
    const WrittenFile broken(content, "rows.csv");
    const std::string error = error_of([&] { broken.open(); });
    EXPECT_TRUE(error.starts_with("[" + broken.path())) << error;
    return error.substr(error.find("rows.csv") + 8);
  };
  EXPECT_EQ(
      refusal("a,b\n1,2\n3,\"open\n4,5\n"),
      ":3:3] not valid CSV: this field begins with a quote and has no closing one; the file may be cut off");
  EXPECT_EQ(refusal("a,b\n1,\"2\"3\n"),
            ":2:6] not valid CSV: text after a closing quote; a quote inside a quoted field is written "
            "twice (\"\")");
  EXPECT_EQ(refusal("a,b,a\n1,2,3\n"),
            ":1:1] not valid CSV: two columns are called 'a'; the first record must name each column once");
  EXPECT_EQ(refusal(",\n1,2\n"),
            ":1:1] not valid CSV: the header names no column; the first record must name them");
}

TEST(Csv, JsonIsReadAsJsonWhateverItsName) {
  EXPECT_EQ(parsed("{\"a\": 1}\n"), Rows{R"({"a": 1})"});
  EXPECT_EQ(parsed("[\n{\"a\": 1}]\n", "rows.txt"), Rows{R"({"a": 1})"});
  EXPECT_TRUE(parsed("text\n").empty());
  EXPECT_TRUE(parsed("").empty());
}

// Records that begin everywhere in the blocks of the first pass.
TEST(Csv, ManyRecords) {
  std::string content = "id,text\n";
  Rows expected;
  for (int i = 0; content.size() < (size_t{5} << 20); ++i) {
    const std::string line(static_cast<size_t>(i * 37 % 900), 'x');
    content += fmt::format("{},\"{}\n\"\"{}\"\n", i, line, i);
    expected.push_back(fmt::format(R"({{"id": "{}", "text": "{}\n\"{}"}})", i, line, i));
  }
  const WrittenFile file(content, "rows.csv");
  const auto rows = file.open();
  EXPECT_EQ(parsed(*rows), expected);
  EXPECT_EQ(rows->place(rows->size() - 1), fmt::format("{}:{}", file.path(), 2 * rows->size()));
}

TEST(Txt, AFileIsARow) {
  const WrittenFile file("\xEF\xBB\xBFOne line.\n\n[and] {another}\n", "book.TXT");
  const auto rows = file.open();
  EXPECT_EQ(parsed(*rows), Rows{R"({"text": "One line.\n\n[and] {another}\n"})"});
  EXPECT_EQ(rows->place(0), file.path());
  EXPECT_TRUE(parsed(" \n", "book.txt").empty());
  const WrittenFile latin("caf\xE9\n", "book.txt");
  EXPECT_EQ(error_of([&] { latin.open()->parse(0); }),
            fmt::format("[{}:1:4] not UTF-8; write the file as UTF-8", latin.path()));
}

}  // namespace
}  // namespace temper::formats
