#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"

namespace temper::data {

// The rows of JSONL files, one file after the other, by index. The files stay mapped, only the places of the
// rows (8 bytes each) are in memory. Blank lines, a byte order mark, CRLF and a last line without an end are
// fine. Reading is thread-safe; the files must not change meanwhile.
class Source {
 public:
  // Reads each file once. Errors: no files, a file that cannot be read, no rows in all of them.
  explicit Source(const std::vector<std::string>& paths);

  int64_t size() const { return size_; }
  Json row(int64_t index) const;           // "[file:LINE:COLUMN] not valid JSON: …"
  std::string place(int64_t index) const;  // "file:LINE", for errors; reads the file up to the line
  std::string_view text(int64_t index) const;

  // Number of rows and bytes and a hash of what the files hold; not their names: they may move.
  const Json& fingerprint() const { return fingerprint_; }

 private:
  struct File {
    explicit File(const std::string& file_path) : path(file_path), bytes(file_path) {}
    std::string path;
    MappedFile bytes;
    int64_t first = 0;             // index of its first row
    std::vector<uint64_t> begins;  // of its rows
  };
  const File& file_of(int64_t index) const;

  std::vector<std::unique_ptr<File>> files_;
  int64_t size_ = 0;
  Json fingerprint_;
};

}  // namespace temper::data
