#include <sstream>

#include "formats/test_support.h"
#include "tests/support/errors.h"

namespace temper::formats {
namespace {

// Of this process, in bytes: all of its memory, mapped files included.
int64_t resident_bytes() {
  std::istringstream words(read_file("/proc/self/statm"));
  int64_t pages = 0;
  words >> pages >> pages;
  return pages * 4096;
}

TEST(RowFile, OpeningALargeFileTakesLittleMemory) {
  const TemporaryDirectory folder;
  constexpr int64_t kBytes = int64_t{192} << 20;
  const std::string line = "{\"text\": \"" + std::string(2000, 'x') + "\"}\n";
  {
    FileWriter writer(folder / "large.jsonl");
    for (int64_t written = 0; written < kBytes; written += static_cast<int64_t>(line.size()))
      writer.write(line);
    writer.close();
  }
  const int64_t before = resident_bytes();
  const auto rows = RowFile::open(folder / "large.jsonl");
  EXPECT_GT(rows->bytes(), kBytes - 1);
  EXPECT_LT(resident_bytes() - before, kBytes / 4);
  EXPECT_EQ(rows->text(rows->size() - 1).size() + 1, line.size());
}

TEST(RowFile, ErrorsOfFilesThatCannotBeRead) {
  const TemporaryDirectory folder;
  expect_has(error_of([&] { RowFile::open(folder / "absent.jsonl"); }), "absent.jsonl");
  expect_has(error_of([&] { RowFile::open(folder.path()); }), "is a folder");
}

TEST(RowFile, ForeignFilesAreNamed) {
  const auto expect_error = [](const std::string& content, const std::string& part) {
    const WrittenFile file(content);
    expect_has(error_of([&] { file.open(); }), fmt::format("[{}] is {}", file.path(), part));
  };
  expect_error("PK\x03\x04 and so on", "a zip archive; unpack it");
  expect_error(fmt::format("{:x>257}ustar", ""), "a tar archive; unpack it");
  expect_error("PARE and so on", "an encrypted Parquet file");
  expect_error("ARROW1", "an Arrow file; write it as Parquet or JSONL");
  expect_error("BZh9", "a bzip2 file");
  if (registry<Conversion>().find("parquet") == nullptr)
    expect_error("PAR1",
                 "a Parquet file; this build does not read them: make setup-parquet && make build adds that");
}

}  // namespace
}  // namespace temper::formats
