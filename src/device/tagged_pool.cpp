#include "device/tagged_pool.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace temper::device {

void* Region::allocate(int64_t bytes) {
  const auto block = blocks_.take(bytes, reserved_);
  if (!block) return nullptr;
  if (!back(blocks_.end())) {
    blocks_.give(block->offset);
    return nullptr;
  }
  usage_.live += block->bytes;
  usage_.peak = std::max(usage_.peak, usage_.live);
  ++usage_.allocations;
  return base_ + block->offset;
}

void Region::release(void* memory) { usage_.live -= blocks_.give(static_cast<std::byte*>(memory) - base_); }

void Region::pause(PauseMode mode) {
  kept_ = mode == PauseMode::kKeep;
  if (kept_) save();
  withdraw();
  usage_.paused = true;
  usage_.held = 0;
}

void Region::resume() {
  if (!back(blocks_.end())) fail_resources("[memory] a paused region does not fit into memory again");
  if (kept_) restore();
  kept_ = false;
  usage_.paused = false;
}

TaggedPool::TaggedPool(int64_t limit, MakeRegion make) : limit_(limit) {
  for (auto& region : regions_) region = make(std::max<int64_t>(limit * 2, int64_t{1} << 30));
}

void* TaggedPool::allocate(int64_t bytes, MemoryTag tag) {
  invariant(bytes >= 0, "allocation of a negative size");
  const std::lock_guard lock(mutex_);
  Region& region = at(tag);
  if (region.paused()) fail("[memory] region '{}' is paused; resume it before use", to_string(tag));
  if (live() + bytes > limit_) fail_out_of_memory(bytes, tag);
  // Blocks kept for reuse count against the limit, and against other regions, only when memory is short.
  const auto trim = [&] {
    for (auto& each : regions_)
      if (!each->paused()) each->trim();
  };
  void* memory = region.allocate(bytes);
  if (memory == nullptr) {
    trim();
    memory = region.allocate(bytes);
  }
  if (memory == nullptr) fail_out_of_memory(bytes, tag);
  if (held() > limit_) trim();
  peak_held_ = std::max(peak_held_, held());
  return memory;
}

void TaggedPool::release(void* memory, MemoryTag tag) noexcept {
  const std::lock_guard lock(mutex_);
  at(tag).release(memory);
}

void TaggedPool::pause(MemoryTag tag, PauseMode mode) {
  const std::lock_guard lock(mutex_);
  if (at(tag).paused()) fail("[memory] region '{}' is paused already", to_string(tag));
  at(tag).pause(mode);
}

void TaggedPool::resume(MemoryTag tag) {
  const std::lock_guard lock(mutex_);
  if (!at(tag).paused()) fail("[memory] region '{}' is not paused", to_string(tag));
  at(tag).resume();
}

MemoryUsage TaggedPool::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_unlocked();
}

void TaggedPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  for (auto& region : regions_) region->reset_peak();
  peak_held_ = held();
}

int64_t TaggedPool::peak_held() const {
  const std::lock_guard lock(mutex_);
  return peak_held_;
}

void TaggedPool::set_limit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

int64_t TaggedPool::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

MemoryUsage TaggedPool::usage_unlocked() const {
  MemoryUsage usage;
  for (size_t i = 0; i < usage.size(); ++i) usage[i] = regions_[i]->usage();
  return usage;
}

int64_t TaggedPool::live() const {
  int64_t sum = 0;
  for (const auto& region : regions_) sum += region->usage().live;
  return sum;
}

int64_t TaggedPool::held() const {
  int64_t sum = 0;
  for (const auto& region : regions_) sum += region->usage().held;
  return sum;
}

namespace {

// What needs less, the asking tag's own first.
std::string advice(MemoryTag tag) {
  constexpr const char* kAtOnce =
      "compute less at once: a smaller train.micro_batch_tokens (at least one row of data.max_length), "
      "train.activation_checkpointing selective or full";
  constexpr const char* kStates =
      "keep smaller states: model.dtype, train.gradients and train.optimizer.moments bfloat16, "
      "train.master_weights false";
  switch (tag) {
    case MemoryTag::kKvCache:
      return "use a shorter prompt, fewer new tokens (--max-new-tokens) or --dtype bfloat16";
    case MemoryTag::kWeights:
    case MemoryTag::kGradients:
    case MemoryTag::kOptimizer:
      return fmt::format("{}; or {}", kStates, kAtOnce);
    default:
      return fmt::format("{}; or {}", kAtOnce, kStates);
  }
}

}  // namespace

void TaggedPool::fail_out_of_memory(int64_t bytes, MemoryTag tag) const {
  const int64_t used = live();
  const std::string found =
      used + bytes > limit_
          ? fmt::format("{} of the limit of {} are in use", format_bytes(used), format_bytes(limit_))
          : fmt::format("the device gives no more than the {} held (the limit is {}); others may use it too",
                        format_bytes(held()), format_bytes(limit_));
  fail_resources("[memory] '{}' asks for {}, but {}. What would fit: {}\n{}", to_string(tag),
                 format_bytes(bytes), found, advice(tag), memory_table(usage_unlocked()));
}

}  // namespace temper::device
