// NVIDIA GPUs: pools over virtual memory, copies, facts.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "device/cuda/graph.h"
#include "device/cuda/region.h"
#include "device/cuda/staging.h"
#include "device/facts.h"
#include "device/transfer.h"

namespace temper::device {
namespace {

int limit_percent = 97;

int64_t free_bytes(int index) {
  stream({DeviceType::kCuda, index});
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
  if (to_device.type == DeviceType::kCpu) return copy_from_gpu(to, from, bytes, from_device);
  if (from_device.type == DeviceType::kCpu) return copy_to_gpu(to, from, bytes, to_device);
  const cudaStream_t order = stream(to_device);
  if (to_device.index != from_device.index) synchronize(from_device);
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, order), "cudaMemcpyAsync");
}

void cuda_clear(void* memory, Device device, int64_t bytes) {
  check(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream(device)), "cudaMemsetAsync");
}

void cuda_synchronize(Device device) {
  const cudaStream_t order = stream(device);
  refuse_in_capture(order, "waiting for the GPU");
  check(cudaStreamSynchronize(order), "the GPU's work");
}

// The GPU that CUDA puts first.
std::optional<HardwareFacts> detect() {
  stream({DeviceType::kCuda, 0});  // refuses with a reason
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  HardwareFacts facts;
  facts.hardware = hardware::kGpu;
  facts.device = {DeviceType::kCuda, 0};
  facts.name = properties.name;
  facts.cores = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  facts.native_bf16 = true;
  facts.compute_capability = 10 * properties.major + properties.minor;
  facts.scratch_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  facts.scratch_name = "shared memory of a multiprocessor";
  return facts;
}

}  // namespace

void register_cuda();
void register_cuda() {
  register_pool(DeviceType::kCuda, cuda_pool);
  register_device(DeviceType::kCuda,
                  {cuda_transfer, cuda_clear, cuda_synchronize, start_reading_gpu, capture_gpu});
  detectors().add("cuda", detect);
}

}  // namespace temper::device
