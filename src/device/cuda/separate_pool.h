#pragma once
#include <map>
#include <mutex>

#include "device/memory.h"

namespace temper::device {

// A pool for compute-sanitizer: every block is an allocation of its own, filled with NaN, so that touching
// memory next to a block is an error that the tool sees, and using unwritten memory one that tests see.
// Slow, and nothing can be paused. Chosen by TEMPER_GPU_POOL=separate.
class SeparatePool final : public Pool {
 public:
  explicit SeparatePool(int index) : device_{DeviceType::kCuda, index} {}
  void* allocate(int64_t bytes, MemoryTag tag) override;
  void release(void* memory, MemoryTag tag) noexcept override;
  void used(void*, MemoryTag) override {}  // giving a block back waits for the GPU
  void pause(MemoryTag tag, PauseMode mode) override;
  void resume(MemoryTag tag) override;
  MemoryUsage usage() const override;
  void reset_peak() override;
  int64_t peak_live() const override { return peak_held(); }
  int64_t peak_held() const override;
  void set_limit(int64_t bytes) override;
  int64_t limit() const override;

 private:
  const Device device_;
  mutable std::mutex mutex_;
  std::map<void*, int64_t> blocks_;
  MemoryUsage usage_ = {};
  int64_t held_ = 0, peak_held_ = 0, limit_ = INT64_MAX;
};

}  // namespace temper::device
