#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "base/files.h"

namespace temper::formats {

// A file that is read front to back, in pieces; what lies behind leaves the process's memory.
class PackedFile {
 public:
  explicit PackedFile(const std::string& path) : path_(path), file_(path) {}
  const std::string& path() const { return path_; }
  std::string_view all() const { return file_.text(); }
  std::string_view piece(size_t at) const { return all().substr(at, kPiece); }
  void passed(size_t begin, size_t end) const { file_.release(begin, end); }

 private:
  static constexpr size_t kPiece = size_t{4} << 20;
  std::string path_;
  MappedFile file_;
};

}  // namespace temper::formats
