#pragma once
#include <vector>

#include "device/cuda/driver.h"
#include "device/tagged_pool.h"

namespace temper::device {

// Reserved addresses of one GPU, behind which physical memory is mapped in chunks as the region grows. A
// paused region gives its chunks back to the device and keeps its addresses.
class CudaRegion final : public Region {
 public:
  CudaRegion(int64_t reserved, int device);
  ~CudaRegion() override;
  int64_t trim() override;  // chunks past the last block in use

 protected:
  bool back(int64_t bytes) override;
  void save() override;
  void restore() override;
  void withdraw() override;

 private:
  void unmap_from(size_t chunk);
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(base_); }

  const int device_;
  std::vector<CUmemGenericAllocationHandle> chunks_;  // mapped one after the other from the base
  std::byte* backup_ = nullptr;                       // pinned host memory while paused with contents
};

// The size of a chunk: large enough that mapping is rare, a multiple of every device's granularity (2 MiB).
inline constexpr int64_t kCudaChunk = int64_t{32} << 20;

}  // namespace temper::device
