#include "device/cuda/sharing.h"

#include <utility>

#include "base/error.h"
#include "device/cuda/events.h"
#include "device/cuda/region.h"
#include "device/cuda/stream.h"

namespace temper::device {
namespace {

std::string identity_of(int gpu) {
  stream({DeviceType::kCuda, gpu});
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return text;
}

// A GPU that this process is not shown cannot be asked about.
bool reaches(int gpu, const std::string& identity) {
  if (identity_of(gpu) == identity) return true;
  for (int other = 0; other < num_gpus(); ++other) {
    if (other == gpu || identity_of(other) != identity) continue;
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, gpu, other), "cudaDeviceCanAccessPeer");
    return can != 0;
  }
  return false;
}

SharedBlock export_of(const void* memory, int64_t bytes) {
  const CudaRegion::Chunks found = CudaRegion::chunks_of(memory, bytes);
  if (const std::string why = why_not_shared(found.device); !why.empty()) fail_resources("{}", why);
  SharedBlock block{{}, found.offset, bytes};
  for (const CUmemGenericAllocationHandle chunk : found.handles) {
    int file = -1;
    check(driver().mem_export(&file, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle");
    block.chunks.emplace_back(file);
  }
  return block;
}

class CudaImport final : public ImportedBlock {
 public:
  CudaImport(Device gpu, const SharedBlock& block)
      : gpu_(gpu.index),
        bytes_(std::ssize(block.chunks) * kCudaChunk),
        address_(reserve_addresses(bytes_)),
        offset_(block.offset) {
    try {
      for (const Descriptor& chunk : block.chunks) add(chunk.get());
    } catch (...) {
      unmap();
      throw;
    }
  }
  ~CudaImport() override { unmap(); }
  CudaImport(const CudaImport&) = delete;
  CudaImport& operator=(const CudaImport&) = delete;
  void* data() const override { return reinterpret_cast<std::byte*>(address_) + offset_; }

 private:
  void add(int file) {
    CUmemGenericAllocationHandle chunk = 0;
    // The driver takes the number of the descriptor in the place of a pointer.
    check(driver().mem_import(&chunk, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
    const CUdeviceptr at = address_ + handles_.size() * static_cast<size_t>(kCudaChunk);
    const CUresult mapped = driver().mem_map(at, kCudaChunk, 0, chunk, 0);
    if (mapped != CUDA_SUCCESS) driver().mem_release(chunk);
    check(mapped, "cuMemMap");
    handles_.push_back(chunk);
    allow_access(at, kCudaChunk, gpu_);
  }
  void unmap() {
    const CurrentGpu current(gpu_);
    cudaDeviceSynchronize();  // kernels in flight may still use it
    for (size_t i = 0; i < handles_.size(); ++i) {
      driver().mem_unmap(address_ + i * kCudaChunk, kCudaChunk);
      driver().mem_release(handles_[i]);
    }
    driver().mem_address_free(address_, static_cast<size_t>(bytes_));
  }

  const int gpu_;
  const int64_t bytes_;
  const CUdeviceptr address_;
  const int64_t offset_;
  std::vector<CUmemGenericAllocationHandle> handles_;
};

std::unique_ptr<ImportedBlock> import_of(Device gpu, const SharedBlock& block) {
  stream(gpu);  // the driver is there, and the GPU one that Temper supports
  const int64_t mapped = std::ssize(block.chunks) * kCudaChunk;
  if (block.offset < 0 || block.bytes <= 0 || block.offset > mapped || block.bytes > mapped - block.offset)
    fail("[cuda] a shared block has {} bytes from byte {} on, but its {} chunks have {}", block.bytes,
         block.offset, block.chunks.size(), mapped);
  return std::make_unique<CudaImport>(gpu, block);
}

}  // namespace

SharingFunctions cuda_sharing() { return {identity_of, reaches, export_of, import_of, gpu_checksum}; }

}  // namespace temper::device
