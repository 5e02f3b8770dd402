#include "base/error.h"
#include "checkpoints/files/safetensors_header.h"

namespace temper::checkpoints {

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                                     const Metadata& metadata)
    : path_(path), tensors_(std::move(tensors)), file_(path) {
  file_.write(format_safetensors_header(tensors_, path_, metadata));
}

void SafetensorsWriter::add(const Tensor& tensor) {
  invariant(next_ < tensors_.size(), fmt::format("[{}] more tensors than were declared", path_));
  const TensorInfo& info = tensors_[next_++];
  invariant(tensor.defined() && tensor.dtype() == info.dtype && tensor.shape() == info.shape,
            fmt::format("[{}] tensor '{}' differs from what was declared: {} {}", path_, info.name,
                        to_string(info.dtype), to_string(info.shape)));
  const Tensor compact = tensor.contiguous(MemoryTag::kWorkspace).on({}, MemoryTag::kWorkspace);
  file_.write(compact.raw(), static_cast<size_t>(compact.bytes()));
}

FileDigest SafetensorsWriter::close() {
  invariant(next_ == tensors_.size(),
            fmt::format("[{}] {} tensors were declared, {} written", path_, tensors_.size(), next_));
  return file_.close();
}

int64_t safetensors_bytes(std::span<const TensorInfo> tensors, const Metadata& metadata) {
  auto bytes = static_cast<int64_t>(format_safetensors_header(tensors, "size of a file", metadata).size());
  for (const TensorInfo& info : tensors) bytes += info.shape.numel() * size_of(info.dtype);
  return bytes;
}

}  // namespace temper::checkpoints
