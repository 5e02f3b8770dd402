#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/hash.h"

namespace temper::checkpoints {

struct FileDigest {
  int64_t size = 0;
  std::string hash;  // base/hash.h, 32 hexadecimal digits
};

using FileDigests = std::map<std::string, FileDigest>;  // of a folder's files, by their names

// A FileWriter that hashes what was meant to be written, so that verifying also finds faults of the write.
class HashedFile {
 public:
  explicit HashedFile(const std::string& path) : writer_(path) {}
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  FileDigest close();  // syncs

 private:
  FileWriter writer_;
  Hasher hasher_;
  int64_t size_ = 0;
};

}  // namespace temper::checkpoints
