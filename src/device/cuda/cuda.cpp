// NVIDIA GPUs: pools over virtual memory, copies, facts.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "device/cuda/graph.h"
#include "device/cuda/moments.h"
#include "device/cuda/region.h"
#include "device/cuda/separate_pool.h"
#include "device/cuda/sharing.h"
#include "device/cuda/staging.h"
#include "device/facts.h"
#include "device/memory_policy.h"
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

bool separate_blocks() {
  const char* chosen = std::getenv("TEMPER_GPU_POOL");
  return chosen != nullptr && std::string_view(chosen) == "separate";
}

ChosenPolicy policy_of(int /*index*/) {
  return separate_blocks() ? ChosenPolicy{MemoryPolicy::kSeparate, "TEMPER_GPU_POOL=separate"}
                           : ChosenPolicy{};
}

template <int kIndex>
Pool& pool_of() {
  // Never destroyed: tensors in static storage may outlive it.
  static Pool& pool = separate_blocks() ? static_cast<Pool&>(*new SeparatePool(kIndex))
                                        : *new CudaPool(kIndex, make_region<kIndex>);
  return pool;
}

Pool& cuda_pool(int index) {
  constexpr Pool& (*kPools[])() = {pool_of<0>, pool_of<1>, pool_of<2>, pool_of<3>,
                                   pool_of<4>, pool_of<5>, pool_of<6>, pool_of<7>};
  if (index < 0 || index >= static_cast<int>(std::size(kPools)))
    fail_resources("[cuda] there is no GPU {}", index);
  return kPools[index]();
}

void cuda_transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (to_device.type == DeviceType::kCpu) return copy_from_gpu(to, from, bytes, from_device);
  if (from_device.type == DeviceType::kCpu) return copy_to_gpu(to, from, bytes, to_device);
  if (to_device.index != from_device.index) return copy_between_gpus(to, to_device, from, from_device, bytes);
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream(to_device)),
        "cudaMemcpyAsync");
}

void cuda_clear(void* memory, Device device, int64_t bytes) {
  check(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream(device)), "cudaMemsetAsync");
}

void cuda_synchronize(Device device) {
  const cudaStream_t order = stream(device);
  refuse_in_capture(order, "waiting for the GPU");
  const bool one = streams(device.index).count() == 1;
  check(one ? cudaStreamSynchronize(order) : cudaDeviceSynchronize(), "the GPU's work");
}

// "580.82.07 (CUDA 13.0)"; only what it supports where the system does not say its version.
std::string driver_version() {
  int supported = 0;
  check(cudaDriverGetVersion(&supported), "cudaDriverGetVersion");
  const std::string cuda = fmt::format("CUDA {}.{}", supported / 1000, supported % 1000 / 10);
  const std::string file = "/proc/driver/nvidia/version";
  std::istringstream words(exists(file) ? read_file(file) : std::string());
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos)
      return fmt::format("{} ({})", word, cuda);
  return cuda;
}

HardwareFacts facts_of(int index) {
  require_supported(index);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  HardwareFacts facts;
  facts.hardware = hardware::kGpu;
  facts.device = {DeviceType::kCuda, index};
  facts.name = properties.name;
  facts.cores = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  facts.native_bf16 = true;
  facts.compute_capability = 10 * properties.major + properties.minor;
  facts.driver = driver_version();
  facts.scratch_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  facts.scratch_name = "shared memory of a multiprocessor";
  return facts;
}

}  // namespace

void register_cuda() {
  register_pool(DeviceType::kCuda, cuda_pool);
  register_device(DeviceType::kCuda,
                  {cuda_transfer, cuda_clear, cuda_synchronize, start_reading_gpu, capture_gpu});
  register_moments(DeviceType::kCuda, mark_gpu);
  register_sharing(DeviceType::kCuda, cuda_sharing());
  register_memory_policy(DeviceType::kCuda, policy_of);
  detectors().add("cuda", {num_gpus, facts_of});
}

}  // namespace temper::device
