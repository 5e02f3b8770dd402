#pragma once
#include <memory>
#include <vector>

#include "device/device.h"

// Memory of a GPU's pool that another process maps: the same bytes, copied nowhere. Processes order their
// work themselves: who exports waits for the GPU (synchronize) before it says that there is something to
// read.
namespace temper::device {

// A file descriptor, closed at its end.
class Descriptor {
 public:
  explicit Descriptor(int file = -1) : file_(file) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return file_; }

 private:
  int file_;
};

// What another process needs to find a block. It keeps physical memory in use, but not the block: the
// exporting process must not release that before the other has done its work.
struct SharedBlock {
  std::vector<Descriptor> chunks;  // of physical memory, one after the other
  int64_t offset = 0;              // of the block in the first
  int64_t bytes = 0;
};
// Of a live block of the GPU's pool. An Error where the driver shares nothing, with its reason.
SharedBlock export_block(const void* memory, int64_t bytes);

// Over a connected Unix socket, for the other end's receive_block().
void send_block(int socket, const SharedBlock& block);
SharedBlock receive_block(int socket);

// A block of another process, mapped for a GPU of this one: the same GPU, or one that can reach its memory.
class ImportedBlock {
 public:
  ImportedBlock(Device gpu, const SharedBlock& block);
  ~ImportedBlock();
  ImportedBlock(const ImportedBlock&) = delete;
  ImportedBlock& operator=(const ImportedBlock&) = delete;
  void* data() const;

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
  int64_t offset_ = 0;
};

}  // namespace temper::device
