#include "device/tagged_pool.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "device/memory_turn.h"

namespace temper::device {

void* Region::allocate(int64_t bytes) {
  const auto block = blocks_.take(bytes, reserved_);
  if (!block) return nullptr;
  if (!back(block->offset, block->offset + block->bytes)) {
    blocks_.give(block->offset);
    return nullptr;
  }
  try {
    uses_.taken(block->offset, block->bytes);
  } catch (...) {
    blocks_.give(block->offset);
    throw;
  }
  live_ += block->bytes;
  return base_ + block->offset;
}

void Region::release(void* memory) {
  const int64_t offset = static_cast<std::byte*>(memory) - base_, bytes = blocks_.give(offset);
  if (bytes > 0) uses_.given(offset, bytes);
  live_ -= bytes;
}

void Region::used(void* memory) { uses_.used(static_cast<std::byte*>(memory) - base_); }

int64_t Region::trim() {
  const int64_t before = held_;
  give_up();
  return before - held_;
}

void Region::pause(PauseMode mode) {
  if (mode == PauseMode::kKeep) save(blocks_.live(), live_);
  kept_ = mode == PauseMode::kKeep;
  if (kept_) kept_blocks_ = blocks_.live();
  withdraw();
  uses_.forget();  // whoever takes memory away has waited for all work
  paused_ = true;
  held_ = 0;
}

bool Region::resume() {
  if (!back(0, blocks_.end())) {
    withdraw();
    held_ = 0;
    return false;
  }
  if (kept_) restore(kept_blocks_);
  kept_blocks_.clear();
  kept_ = false;
  paused_ = false;
  return true;
}

namespace {

// Of few addresses, by what runs need: in hundredths, by tag.
constexpr std::array<int64_t, kNumMemoryTags> kShares{22, 0, 22, 34, 6, 2, 8, 6};
constexpr int64_t kPlenty = int64_t{1} << 30;

}  // namespace

TaggedPool::TaggedPool(int64_t limit, MakeRegion make, int64_t addresses, std::string limited_by)
    : limited_by_(std::move(limited_by)), limit_(limit) {
  const int64_t most = std::max(limit * 2, kPlenty);
  for (size_t i = 0; i < regions_.size(); ++i)
    if (static_cast<MemoryTag>(i) != MemoryTag::kGradients)
      regions_[i] = make(addresses < 0 ? most : std::min(most, addresses / 100 * kShares[i]));
}

Region* TaggedPool::region_of(MemoryTag tag) const { return regions_[static_cast<size_t>(tag)].get(); }

Region& TaggedPool::at(MemoryTag tag) const {
  return *region_of(tag == MemoryTag::kGradients ? MemoryTag::kActivations : tag);
}

void TaggedPool::count(MemoryTag tag, int64_t bytes) {
  RegionUsage& usage = usage_[static_cast<size_t>(tag)];
  usage.live += bytes;
  usage.peak = std::max(usage.peak, usage.live);
  usage.allocations += bytes > 0 ? 1 : 0;
}

void* TaggedPool::allocate(int64_t bytes, MemoryTag tag) {
  invariant(bytes >= 0, "allocation of a negative size");
  const std::lock_guard lock(mutex_);
  Region& region = at(tag);
  if (region.paused())
    fail("[memory] '{}' asks for {}, but its region sleeps ({}); wake it first", to_string(tag),
         format_bytes(bytes), turn_of(*this, tag));
  const int64_t others = live() - region.live();
  if (others + region.live() + bytes > limit_) fail_out_of_memory(bytes, tag);
  // Blocks kept for reuse count against the limit, and against other regions, only when memory is short.
  const int64_t before = region.live();
  void* memory = region.allocate(bytes);
  if (memory == nullptr) {
    trim();
    memory = region.allocate(bytes);
  }
  if (memory == nullptr) fail_out_of_memory(bytes, tag);
  count(tag, region.live() - before);
  peak_live_ = std::max(peak_live_, others + region.live());
  int64_t all_held = held();
  if (all_held > limit_) {
    trim();
    all_held = held();
  }
  peak_held_ = std::max(peak_held_, all_held);
  return memory;
}

void TaggedPool::trim() {
  for (auto& each : regions_)
    if (each && !each->paused()) each->trim();
}

void TaggedPool::release(void* memory, MemoryTag tag) noexcept {
  const std::lock_guard lock(mutex_);
  Region& region = at(tag);
  const int64_t before = region.live();
  region.release(memory);
  count(tag, region.live() - before);
}

void TaggedPool::used(void* memory, MemoryTag tag) {
  const std::lock_guard lock(mutex_);
  at(tag).used(memory);
}

Region& TaggedPool::pausable(MemoryTag tag) const {
  Region* region = region_of(tag);
  if (region == nullptr)
    fail("[memory] '{}' live in the region '{}'; pause and resume that one", to_string(tag),
         to_string(MemoryTag::kActivations));
  return *region;
}

void TaggedPool::pause(MemoryTag tag, PauseMode mode) {
  const std::lock_guard lock(mutex_);
  Region& region = pausable(tag);
  if (region.paused()) fail("[memory] region '{}' sleeps already ({})", to_string(tag), turn_of(*this, tag));
  region.pause(mode);
}

void TaggedPool::resume(MemoryTag tag) {
  const std::lock_guard lock(mutex_);
  Region& region = pausable(tag);
  if (!region.paused()) fail("[memory] region '{}' is awake already", to_string(tag));
  const auto no_room = [&](int64_t most) {
    throw OutOfMemory(fmt::format(
        "[memory] region '{}' needs {} to wake, but {} are in use, and {} may be. What would fit: free what "
        "was allocated while it slept ({})\n{}",
        to_string(tag), format_bytes(region.live()), format_bytes(live()), format_bytes(most),
        turn_of(*this, tag), memory_table(usage_unlocked(), peak_live_)));
  };
  if (live() + region.live() > limit_) no_room(limit_);
  if (!region.resume()) {
    trim();
    if (!region.resume()) no_room(held());
  }
  if (held() > limit_) trim();
  peak_live_ = std::max(peak_live_, live());
  peak_held_ = std::max(peak_held_, held());
}

MemoryUsage TaggedPool::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_unlocked();
}

void TaggedPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  for (RegionUsage& usage : usage_) usage.peak = usage.live;
  peak_live_ = live();
  peak_held_ = held();
}

int64_t TaggedPool::peak_live() const {
  const std::lock_guard lock(mutex_);
  return peak_live_;
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
  MemoryUsage usage = usage_;
  for (size_t i = 0; i < usage.size(); ++i) {
    const auto tag = static_cast<MemoryTag>(i);
    if (const Region* region = region_of(tag)) {
      usage[i].held = region->held();
      usage[i].backup = region->backup();
    }
    usage[i].paused = at(tag).paused();
  }
  return usage;
}

int64_t TaggedPool::live() const {
  int64_t sum = 0;
  for (const auto& region : regions_) sum += region && !region->paused() ? region->live() : 0;
  return sum;
}

int64_t TaggedPool::held() const {
  int64_t sum = 0;
  for (const auto& region : regions_) sum += region ? region->held() : 0;
  return sum;
}

namespace {

// What needs less, the asking tag's own first.
std::string advice(MemoryTag tag) {
  constexpr const char* kAtOnce =
      "compute less at once: a smaller train.micro_batch_tokens (at least one row of data.max_length), "
      "train.activation_checkpointing selective or full";
  constexpr const char* kStates =
      "use smaller optimizer states: model.dtype, train.gradients and train.optimizer.moments bfloat16, "
      "train.master_weights false (a run that has begun keeps its own)";
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
  const std::string whose = limited_by_.empty() ? "" : fmt::format(", which {} sets", limited_by_);
  const std::string found =
      used + bytes > limit_
          ? fmt::format("{} of the limit of {}{} are in use", format_bytes(used), format_bytes(limit_), whose)
      : !limited_by_.empty()
          ? fmt::format("{} allows no more than the {} in use (the limit is {}); raise it", limited_by_,
                        format_bytes(used), format_bytes(limit_))
          : fmt::format(
                "the device has no free memory beyond the {} that this process holds (the limit is {}); "
                "other processes may use the device",
                format_bytes(held()), format_bytes(limit_));
  throw OutOfMemory(fmt::format("[memory] '{}' asks for {}, but {}. What would fit: {}\n{}", to_string(tag),
                                format_bytes(bytes), found, advice(tag),
                                memory_table(usage_unlocked(), peak_live_)));
}

}  // namespace temper::device
