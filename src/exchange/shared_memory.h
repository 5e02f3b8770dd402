#pragma once
#include <cstddef>
#include <cstdint>

#include "device/sharing.h"

namespace temper::exchange {

// Memory of the CPU that two processes map. It has no name in any folder: the other process gets its file
// descriptor through a socket, and the system frees it when the last of both has closed it or died. Its size
// is sealed, so that neither can cut off what the other reads.
class SharedMemory {
 public:
  // New memory. An Error (kResources) where the system has none.
  explicit SharedMemory(int64_t bytes);
  // Another process's, read only. An Error where it is not sealed or has not that many bytes.
  SharedMemory(device::Descriptor file, int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int file() const { return file_.get(); }

 private:
  void map(int protection);

  device::Descriptor file_;
  int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace temper::exchange
