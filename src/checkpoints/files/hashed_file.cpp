#include "checkpoints/files/hashed_file.h"

namespace temper::checkpoints {

void HashedFile::write(const void* data, size_t size) {
  hasher_.update(data, size);
  writer_.write(data, size);
  size_ += static_cast<int64_t>(size);
}

FileDigest HashedFile::close() {
  writer_.close();
  return {size_, hasher_.digest()};
}

}  // namespace temper::checkpoints
