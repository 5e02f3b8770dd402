// checksum_of() on a GPU: every thread adds up words of its own, and integers add up alike in any order.
#include "device/cuda/sharing.h"
#include "device/cuda/stream.h"
#include "device/memory.h"
#include "device/transfer.h"

namespace temper::device {
namespace {

constexpr int kThreads = 256, kBlocksEach = 8;  // of a block; of a multiprocessor

__global__ void add_parts(const uint64_t* words, uint64_t count, unsigned long long* sum) {
  uint64_t own = 0;
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    own += checksum_part(i, words[i]);
  for (int offset = 16; offset > 0; offset /= 2) own += __shfl_down_sync(0xffffffffU, own, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(own));
}

}  // namespace

uint64_t gpu_checksum(Device gpu, const void* memory, int64_t bytes) {
  const cudaStream_t order = stream(gpu);
  const uint64_t words = static_cast<uint64_t>(bytes) / sizeof(uint64_t);
  auto* const sum = static_cast<unsigned long long*>(pool(gpu).allocate(sizeof(uint64_t), MemoryTag::kWorkspace));
  uint64_t all = 0, last = 0;
  try {
    check(cudaMemsetAsync(sum, 0, sizeof(uint64_t), order), "cudaMemsetAsync");
    add_parts<<<kBlocksEach * multiprocessors(gpu), kThreads, 0, order>>>(static_cast<const uint64_t*>(memory),
                                                                         words, sum);
    check_launch("checksum");
    transfer(&all, {}, sum, gpu, sizeof all);
    transfer(&last, {}, static_cast<const std::byte*>(memory) + words * sizeof last, gpu,
             bytes % static_cast<int64_t>(sizeof last));
  } catch (...) {
    pool(gpu).release(sum, MemoryTag::kWorkspace);
    throw;
  }
  pool(gpu).release(sum, MemoryTag::kWorkspace);
  return all + checksum_part(words, last) + checksum_part(words + 1, static_cast<uint64_t>(bytes));
}

}  // namespace temper::device
