#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/files.h"
#include "formats/row_cache.h"
#include "formats/row_file.h"

namespace temper::formats {

// The cache of rows is a folder of the test's own.
class CacheTest : public testing::Test {
 protected:
  CacheTest() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~CacheTest() override { ::unsetenv("XDG_CACHE_HOME"); }

  std::vector<std::string> cached() const {
    return is_directory(row_cache_folder()) ? list_directory(row_cache_folder()) : std::vector<std::string>();
  }
  std::string cached_path() const { return join_path(row_cache_folder(), cached().at(0)); }

 private:
  TemporaryDirectory folder_;
};

// A text is written and opened; its rows are what is asked for.
class WrittenFile {
 public:
  explicit WrittenFile(const std::string& content, const std::string& name = "rows") : path_(folder_ / name) {
    write_file(path_, content);
  }
  std::unique_ptr<RowFile> open() const { return RowFile::open(path_); }
  const std::string& path() const { return path_; }

 private:
  TemporaryDirectory folder_;
  std::string path_;
};

inline std::vector<std::string> rows_of(const RowFile& file) {
  std::vector<std::string> rows;
  for (int64_t row = 0; row < file.size(); ++row) rows.emplace_back(file.text(row));
  return rows;
}

}  // namespace temper::formats
