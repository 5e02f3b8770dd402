#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/hash.h"

namespace temper::formats {

// A mapped file that is read once from front to back, and later anywhere. The first pass hashes it, counts
// its lines and gives pages back, so that a large file does not fill the process's memory.
class ScannedText {
 public:
  explicit ScannedText(const std::string& path) : file_(path) {}
  std::string_view all() const { return file_.text(); }
  void check_unchanged() const { file_.check_unchanged(); }

  // The first pass, as far as `end`; whoever drives it looks at bytes just before or just after it passes
  // them.
  void pass(size_t end) {
    if (end - passed_ >= kBlock) pass_blocks(end);
  }
  void finish();

  // After finish().
  const std::string& hash() const { return digest_; }
  int64_t line(size_t offset) const;   // from 1
  size_t column(size_t offset) const;  // from 1, in bytes

 private:
  static constexpr size_t kBlock = size_t{1} << 20;
  void pass_blocks(size_t end);
  void pass_block(size_t end);

  MappedFile file_;
  Hasher hasher_;
  std::string digest_;
  size_t passed_ = 0;
  size_t released_ = 0;
  std::vector<int64_t> lines_ = {0};  // line ends before each block
};

}  // namespace temper::formats
