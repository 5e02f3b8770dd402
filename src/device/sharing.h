#pragma once
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

struct msghdr;

// Memory of a device's pool that another process of the machine maps: the same bytes, copied nowhere.
// Processes order their work themselves: who exports waits for the device (synchronize) before it says that
// there is something to read.
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

// All descriptors that came with a message over a Unix socket. The system closes those that its buffer has no
// room for, and says so (MSG_CTRUNC).
std::vector<Descriptor> descriptors_of(msghdr& message);

// What another process needs to find a block. It keeps physical memory in use, but not the block: the
// exporting process must not release that before the other has done its work.
struct SharedBlock {
  std::vector<Descriptor> chunks;  // of physical memory, one after the other
  int64_t offset = 0;              // of the block in the first
  int64_t bytes = 0;
};

// Over a connected Unix socket, for the other end's receive_block(). Waits as long as the socket's own
// time-out allows (SO_SNDTIMEO).
void send_block(int socket, const SharedBlock& block);
// An Error (kResources) where not all of it has come within the deadline.
SharedBlock receive_block(int socket, double deadline_seconds);

// A block of another process, mapped for a device of this one: the same device, or one that reaches its
// memory.
class ImportedBlock {
 public:
  virtual ~ImportedBlock() = default;
  virtual void* data() const = 0;
};

// What a type of device does for it; its room registers it.
struct SharingFunctions {
  // By which two processes know that they mean the same device, however many of them each is shown: a UUID
  // ("GPU-1b2c…"), or, of devices that have none, the machine's own number of it ("npu 3").
  std::string (*identity)(int index) = nullptr;
  // Whether a device can read the memory of another one, which is named by its identity.
  bool (*reaches)(int index, const std::string& identity) = nullptr;
  // Of a live block of the device's pool. An Error where the driver shares nothing, with its reason.
  SharedBlock (*export_block)(const void* memory, int64_t bytes) = nullptr;
  std::unique_ptr<ImportedBlock> (*import_block)(Device device, const SharedBlock& block) = nullptr;
  // checksum_of() of memory on the device; waits for it.
  uint64_t (*checksum)(Device device, const void* memory, int64_t bytes) = nullptr;
};
void register_sharing(DeviceType type, SharingFunctions functions);
// An Error (kResources) where the device's room shares no memory.
const SharingFunctions& sharing_of(Device device);

// What the word at place `index` of a block adds to its checksum: another number for every word and place, by
// the finalizer of Stafford's Mix13 (as in SplitMix64). Sums of them do not depend on their order, so that a
// device forms them in any.
constexpr uint64_t checksum_part(uint64_t index, uint64_t word) {
  uint64_t x = word ^ (index * 0x9e3779b97f4a7c15ULL);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
// Of bytes on the CPU: the sum, modulo 2^64, of checksum_part of its words of 8 bytes, the last padded
// with zeros, and of the number of bytes behind them. For integrity, not for security.
uint64_t checksum_of(const void* memory, int64_t bytes);

}  // namespace temper::device
