#include "device/cuda/separate_pool.h"

#include <algorithm>

#include "base/error.h"
#include "device/cuda/stream.h"

namespace temper::device {

void* SeparatePool::allocate(int64_t bytes, MemoryTag tag) {
  const cudaStream_t order = stream(device_);
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const std::lock_guard lock(mutex_);
  if (held_ + bytes > limit_)
    throw OutOfMemory(fmt::format("[memory] '{}' asks for more than the limit", to_string(tag)));
  void* memory = nullptr;
  check(cudaMalloc(&memory, size), "cudaMalloc");
  check(cudaMemsetAsync(memory, 0xFF, size, order), "cudaMemsetAsync");
  blocks_[memory] = bytes;
  RegionUsage& usage = usage_[static_cast<size_t>(tag)];
  usage.live += bytes;
  usage.held = usage.live;
  usage.peak = std::max(usage.peak, usage.live);
  ++usage.allocations;
  held_ += bytes;
  peak_held_ = std::max(peak_held_, held_);
  return memory;
}

void SeparatePool::release(void* memory, MemoryTag tag) noexcept {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(memory);
  if (block == blocks_.end()) return;
  RegionUsage& usage = usage_[static_cast<size_t>(tag)];
  usage.live -= block->second;
  usage.held = usage.live;
  held_ -= block->second;
  blocks_.erase(block);
  cudaFree(memory);  // waits for the GPU's work
}

void SeparatePool::pause(MemoryTag, PauseMode) {
  fail("[memory] with TEMPER_GPU_POOL=separate nothing is paused");
}
void SeparatePool::resume(MemoryTag) { fail("[memory] with TEMPER_GPU_POOL=separate nothing is paused"); }

MemoryUsage SeparatePool::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void SeparatePool::reset_peak() {
  const std::lock_guard lock(mutex_);
  for (RegionUsage& usage : usage_) usage.peak = usage.live;
  peak_held_ = held_;
}

int64_t SeparatePool::peak_held() const {
  const std::lock_guard lock(mutex_);
  return peak_held_;
}

void SeparatePool::set_limit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

int64_t SeparatePool::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

}  // namespace temper::device
