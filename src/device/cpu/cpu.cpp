// The CPU's pool: one region per tag over reserved virtual addresses.
#include <algorithm>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "device/cpu/region.h"

namespace temper::device {
namespace {

class CpuPool final : public Pool {
 public:
  // Kept below what is available, so that the system's out-of-memory killer is never asked.
  CpuPool() : limit_(available_host_bytes() / 100 * 95) {
    for (auto& region : regions_) region = std::make_unique<Region>(std::max<int64_t>(limit_ * 2, int64_t{1} << 30));
  }

  void* allocate(int64_t bytes, MemoryTag tag) override {
    invariant(bytes >= 0, "allocation of a negative size");
    const std::lock_guard lock(mutex_);
    Region& region = at(tag);
    if (region.paused()) fail("[memory] region '{}' is paused; resume it before use", to_string(tag));
    void* memory = live() + bytes > limit_ ? nullptr : region.allocate(bytes);
    if (memory == nullptr) fail_out_of_memory(bytes, tag);
    // Blocks kept for reuse count against the limit only when it is reached.
    if (held() > limit_)
      for (auto& each : regions_)
        if (!each->paused()) each->trim();
    return memory;
  }

  void release(void* memory, MemoryTag tag) noexcept override {
    const std::lock_guard lock(mutex_);
    at(tag).release(memory);
  }

  void pause(MemoryTag tag, PauseMode mode) override {
    const std::lock_guard lock(mutex_);
    if (at(tag).paused()) fail("[memory] region '{}' is paused already", to_string(tag));
    at(tag).pause(mode);
  }

  void resume(MemoryTag tag) override {
    const std::lock_guard lock(mutex_);
    if (!at(tag).paused()) fail("[memory] region '{}' is not paused", to_string(tag));
    at(tag).resume();
  }

  MemoryUsage usage() const override {
    const std::lock_guard lock(mutex_);
    return usage_unlocked();
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    for (auto& region : regions_) region->reset_peak();
  }

  void set_limit(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

  int64_t limit() const override {
    const std::lock_guard lock(mutex_);
    return limit_;
  }

 private:
  Region& at(MemoryTag tag) { return *regions_[static_cast<size_t>(tag)]; }

  MemoryUsage usage_unlocked() const {
    MemoryUsage usage;
    for (size_t i = 0; i < usage.size(); ++i) usage[i] = regions_[i]->usage();
    return usage;
  }

  int64_t live() const {
    int64_t sum = 0;
    for (const auto& region : regions_) sum += region->usage().live;
    return sum;
  }

  int64_t held() const {
    int64_t sum = 0;
    for (const auto& region : regions_) sum += region->usage().held;
    return sum;
  }

  [[noreturn]] void fail_out_of_memory(int64_t bytes, MemoryTag tag) const {
    fail_resources(
        "[memory] '{}' asks for {}, but {} of the limit of {} are in use; use a smaller micro-batch or sequence "
        "length, activation checkpointing, or bf16\n{}",
        to_string(tag), format_bytes(bytes), format_bytes(live()), format_bytes(limit_),
        memory_table(usage_unlocked()));
  }

  mutable std::mutex mutex_;
  int64_t limit_;
  std::array<std::unique_ptr<Region>, kNumMemoryTags> regions_;
};

Pool& cpu_pool(int) {
  // Never destroyed: tensors in static storage may outlive it.
  static CpuPool& pool = *new CpuPool;
  return pool;
}

}  // namespace

void register_cpu() { register_pool(DeviceType::kCpu, cpu_pool); }

}  // namespace temper::device
