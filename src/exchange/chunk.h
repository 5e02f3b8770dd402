#pragma once
#include <memory>
#include <optional>
#include <string>

#include "device/sharing.h"
#include "exchange/shared_memory.h"
#include "tensor/tensor.h"

// The memory that values travel through: the sender's, which the receiver maps; of the CPU or of a device.
namespace temper::exchange {

// The device as processes name it to each other: its type, and for memory of a device which one.
std::string memory_name(Device device);      // "cpu", "cuda"
std::string device_identity(Device device);  // of the CPU ""

// The sender's side. A device's lies in its pool, tag workspace.
class OutgoingChunk {
 public:
  OutgoingChunk(Device device, int64_t bytes);

  Device device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  // A compact tensor's elements, from `first` on, to byte `at`. The tensor is on this device.
  void put(int64_t at, const Tensor& elements, int64_t first, int64_t count);
  // Of the first bytes of the chunk, once they have all arrived.
  std::string checksum(int64_t bytes) const;
  // What the other side maps: a descriptor of the CPU's memory (-1: none), or a block of the device's.
  int file() const { return host_ ? host_->file() : -1; }
  const device::SharedBlock* block() const { return device_memory_.defined() ? &block_ : nullptr; }

 private:
  const Device device_;
  const int64_t bytes_;
  std::unique_ptr<SharedMemory> host_;
  Tensor device_memory_;  // [bytes] uint8
  device::SharedBlock block_;
};

// The receiver's side.
class IncomingChunk {
 public:
  // Of the CPU's memory.
  IncomingChunk(device::Descriptor file, int64_t bytes);
  // Of a device's memory, which `reader` reads.
  IncomingChunk(Device reader, const device::SharedBlock& block);

  int64_t bytes() const { return bytes_; }
  std::string checksum(int64_t bytes) const;
  // `count` elements from byte `at` on: a view of the CPU's memory, or a copy on the device that reads it.
  Tensor elements(int64_t at, int64_t count, DType dtype) const;

 private:
  const Device device_;
  const int64_t bytes_;
  std::shared_ptr<const SharedMemory> host_;
  std::unique_ptr<device::ImportedBlock> device_memory_;
};

}  // namespace temper::exchange
