// NVIDIA GPUs: pools over virtual memory, copies, facts.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "device/cuda/region.h"
#include "device/facts.h"
#include "device/transfer.h"

namespace temper::device {
namespace {

constexpr int kLowestCapability = 80;

int limit_percent = 97;

// Makes the device current and refuses one that kernels are not written for.
void use_device(int index) {
  driver();
  check(cudaSetDevice(index), "cudaSetDevice");
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "cudaDeviceGetAttribute");
  if (10 * major + minor < kLowestCapability)
    fail_resources("[cuda] GPU {} has compute capability {}.{}; Temper needs {}.{} or later", index, major,
                   minor, kLowestCapability / 10, kLowestCapability % 10);
}

int64_t free_bytes(int index) {
  use_device(index);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

template <int kIndex>
std::unique_ptr<Region> make_region(int64_t bytes) {
  return std::make_unique<CudaRegion>(round_up(bytes, kCudaChunk), kIndex);
}

class CudaPool final : public TaggedPool {
 public:
  CudaPool(int index, MakeRegion make) : TaggedPool(free_bytes(index) / 100 * limit_percent, make) {}
};

template <int kIndex>
Pool& pool_of() {
  // Never destroyed: tensors in static storage may outlive it.
  static CudaPool& pool = *new CudaPool(kIndex, make_region<kIndex>);
  return pool;
}

Pool& cuda_pool(int index) {
  constexpr Pool& (*kPools[])() = {pool_of<0>, pool_of<1>, pool_of<2>, pool_of<3>,
                                   pool_of<4>, pool_of<5>, pool_of<6>, pool_of<7>};
  if (index < 0 || index >= static_cast<int>(std::size(kPools))) fail("[cuda] there is no GPU {}", index);
  return kPools[index]();
}

void cuda_transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (to_device.type == from_device.type && to_device.index != from_device.index) {
    check(cudaMemcpyPeer(to, to_device.index, from, from_device.index, size), "cudaMemcpyPeer");
    return;
  }
  check(cudaSetDevice(to_device.type == DeviceType::kCuda ? to_device.index : from_device.index),
        "cudaSetDevice");
  check(cudaMemcpy(to, from, size, cudaMemcpyDefault), "cudaMemcpy");
  // Copies within a device return early.
  if (to_device.type == from_device.type) check(cudaDeviceSynchronize(), "cudaMemcpy");
}

}  // namespace

void register_cuda();
void register_cuda() {
  register_pool(DeviceType::kCuda, cuda_pool);
  register_transfer(DeviceType::kCuda, cuda_transfer);
}

}  // namespace temper::device
