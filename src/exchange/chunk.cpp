#include "exchange/chunk.h"

#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "device/transfer.h"

namespace temper::exchange {
namespace {

std::string host_checksum(const std::byte* data, int64_t bytes) {
  Hasher hasher;
  hasher.update(data, static_cast<size_t>(bytes));
  return hasher.digest();
}

std::string device_checksum(Device device, const void* data, int64_t bytes) {
  return fmt::format("{:016x}", device::sharing_of(device).checksum(device, data, bytes));
}

}  // namespace

std::string memory_name(Device device) {
  const std::string name = to_string(device);
  return name.substr(0, name.find(':'));
}

std::string device_identity(Device device) {
  return device.type == DeviceType::kCpu ? "" : device::sharing_of(device).identity(device.index);
}

OutgoingChunk::OutgoingChunk(Device device, int64_t bytes) : device_(device), bytes_(bytes) {
  if (device.type == DeviceType::kCpu) {
    host_ = std::make_unique<SharedMemory>(bytes);
    return;
  }
  device_memory_ = Tensor::empty({bytes}, DType::kU8, MemoryTag::kWorkspace, device);
  block_ = device::sharing_of(device).export_block(device_memory_.raw(), bytes);
}

void OutgoingChunk::put(int64_t at, const Tensor& elements, int64_t first, int64_t count) {
  const int64_t size = size_of(elements.dtype());
  const auto* from = static_cast<const std::byte*>(elements.raw()) + first * size;
  std::byte* const to = host_ ? host_->data() : static_cast<std::byte*>(device_memory_.raw());
  transfer(to + at, device_, from, elements.device(), count * size);
}

std::string OutgoingChunk::checksum(int64_t bytes) const {
  return host_ ? host_checksum(host_->data(), bytes) : device_checksum(device_, device_memory_.raw(), bytes);
}

IncomingChunk::IncomingChunk(device::Descriptor file, int64_t bytes)
    : bytes_(bytes), host_(std::make_shared<const SharedMemory>(std::move(file), bytes)) {}

IncomingChunk::IncomingChunk(Device reader, const device::SharedBlock& block)
    : device_(reader),
      bytes_(block.bytes),
      device_memory_(device::sharing_of(reader).import_block(reader, block)) {}

std::string IncomingChunk::checksum(int64_t bytes) const {
  return host_ ? host_checksum(host_->data(), bytes)
               : device_checksum(device_, device_memory_->data(), bytes);
}

Tensor IncomingChunk::elements(int64_t at, int64_t count, DType dtype) const {
  if (host_) return Tensor::borrow(host_->data() + at, {count}, dtype, host_);
  const Tensor copy = Tensor::empty({count}, dtype, MemoryTag::kWorkspace, device_);
  transfer(copy.raw(), device_, static_cast<const std::byte*>(device_memory_->data()) + at, device_,
           copy.bytes());
  return copy;
}

}  // namespace temper::exchange
