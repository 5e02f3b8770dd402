#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "formats/row_file.h"

namespace temper::data {

// The rows of data files, one file after the other, by index; formats/ says which files there are. Reading is
// thread-safe; the files must not change meanwhile.
class Source {
 public:
  // Reads each file once. Errors: no files, a file that cannot be read, no rows in all of them.
  explicit Source(const std::vector<std::string>& paths);

  int64_t size() const { return size_; }
  Json row(int64_t index) const;              // "[file:LINE:COLUMN] not valid JSON: …"
  void check_unchanged(int64_t index) const;  // the file of a row
  std::string place(int64_t index) const;     // "file:LINE", for errors
  const std::string& path(int64_t index) const { return find(index).file->path(); }  // of a row's file
  int64_t first_of_file(int64_t index) const { return index - find(index).index; }
  std::string_view text(int64_t index) const;

  // Number of rows and bytes and a hash of what the files hold; not their names: they may move.
  const Json& fingerprint() const { return fingerprint_; }

 private:
  struct Row {
    const formats::RowFile* file;
    int64_t index;
  };
  Row find(int64_t index) const;

  std::vector<std::unique_ptr<formats::RowFile>> files_;
  std::vector<int64_t> first_;  // each file's first row
  int64_t size_ = 0;
  Json fingerprint_;
};

}  // namespace temper::data
