#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "formats/scanned_text.h"

namespace temper::formats {

// A file to open: what is read, and what messages call it (a compressed file's rows are read from elsewhere).
struct OpenedFile {
  std::string path;
  std::string name;
  bool has_lines = true;  // lines of `path` are lines of `name`
};

// The rows of one data file, by index: each is an object. The file
// stays mapped, only the places of its rows (8 bytes each) are in memory. Reading is thread-safe; the
// file must not change meanwhile.
class RowFile {
 public:
  // Reads the file once. Its content says what it is; only plain text and tables are recognized by their
  // name. Errors name the file, and for a broken one the line and column.
  static std::unique_ptr<RowFile> open(const std::string& path);

  virtual ~RowFile() = default;
  int64_t size() const { return static_cast<int64_t>(begins_.size()); }
  virtual std::string_view text(
      int64_t row) const = 0;  // as it stands in the file; valid as long as this object lives
  virtual std::string place(int64_t row) const = 0;  // "file.jsonl:LINE", "file.json: row 3 (line 12)"
  virtual Json parse(int64_t row) const;             // "[file:LINE:COLUMN] not valid JSON: …"

  const std::string& path() const { return name_; }          // of the data file, packed or not
  void check_unchanged() const { text_.check_unchanged(); }  // an Error when it was written to since

  // Of the rows' file, unpacked; the same wherever it lies and however it is compressed.
  int64_t bytes() const { return static_cast<int64_t>(text_.all().size()); }
  const std::string& hash() const { return text_.hash(); }

 protected:
  explicit RowFile(const OpenedFile& file) : name_(file.name), has_lines_(file.has_lines), text_(file.path) {}
  size_t begin(int64_t row) const;

  std::string name_;
  bool has_lines_;
  ScannedText text_;
  std::vector<uint64_t> begins_;
};

}  // namespace temper::formats
