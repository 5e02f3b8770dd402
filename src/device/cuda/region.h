#pragma once
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/pinned_backup.h"
#include "device/tagged_pool.h"

namespace temper::device {

// The size of a chunk: large enough that mapping is rare, a multiple of every device's granularity (2 MiB).
inline constexpr int64_t kCudaChunk = int64_t{32} << 20;

// Physical memory of one GPU, of `bytes` (whole kCudaChunk). Nothing where there is none left. Other
// processes may map it where `can_share` says so (device/cuda/sharing.h).
bool make_chunk(int gpu, int64_t bytes, CUmemGenericAllocationHandle* chunk);
// Why chunks of a GPU cannot be shared between processes; empty where they can.
std::string why_not_shared(int gpu);
// Lets a GPU read and write what is mapped at an address.
void allow_access(CUdeviceptr address, int64_t bytes, int gpu);
CUdeviceptr reserve_addresses(int64_t bytes);

// Reserved addresses of one GPU, behind which physical memory is mapped in chunks as the region grows. A
// paused region gives its chunks back to the device and keeps its addresses.
class CudaRegion final : public Region {
 public:
  CudaRegion(int64_t reserved, int device);
  ~CudaRegion() override;

  // The chunks behind some bytes of a live block in any region, one after the other, and where the bytes
  // begin in the first of them. An Error for memory that is in no region.
  struct Chunks {
    int device = 0;
    std::vector<CUmemGenericAllocationHandle> handles;
    int64_t offset = 0;
  };
  static Chunks chunks_of(const void* memory, int64_t bytes);
  int64_t backup() const override { return backup_.bytes(); }

 protected:
  bool back(int64_t begin, int64_t end) override;
  void save(const Blocks& blocks, int64_t bytes) override;
  void restore(const Blocks& blocks) override;
  void withdraw() override;
  void give_up() override;  // chunks past the last block in use

 private:
  void copy(const Blocks& blocks, cudaMemcpyKind kind) const;
  bool map_chunk();  // one more, without access rights yet; false where there is no memory for it
  void unmap_from(size_t chunk);
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(base_); }
  CUdeviceptr chunk_at(size_t i) const { return address() + i * static_cast<size_t>(kCudaChunk); }

  const int device_;
  std::vector<CUmemGenericAllocationHandle> chunks_;  // mapped one after the other from the base
  PinnedBackup backup_;
};

}  // namespace temper::device
