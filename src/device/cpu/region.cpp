#include "device/cpu/region.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace temper::device {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = 2 << 20;

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

Region::Region(int64_t reserve_bytes) : reserved_(round_up(reserve_bytes, kHugePage)) {
  // Addresses only: pages arrive when they are touched.
  void* memory = ::mmap(nullptr, static_cast<size_t>(reserved_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail_resources("[memory] cannot reserve {} bytes of addresses", reserved_);
  ::madvise(memory, static_cast<size_t>(reserved_), MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(memory);
}

Region::~Region() { ::munmap(base_, static_cast<size_t>(reserved_)); }

void Region::insert_free(int64_t offset, int64_t bytes) {
  free_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void Region::erase_free(std::map<int64_t, int64_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

void* Region::allocate(int64_t bytes) {
  bytes = round_up(std::max<int64_t>(bytes, 1), kAlignment);
  int64_t offset = end_;
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit != by_size_.end()) {
    offset = fit->second;
    const int64_t spare = fit->first - bytes;
    erase_free(free_.find(offset));
    if (spare > 0) insert_free(offset + bytes, spare);
  } else {
    // The last free block may be extended instead of left behind.
    if (!free_.empty() && free_.rbegin()->first + free_.rbegin()->second == end_) {
      offset = free_.rbegin()->first;
      if (offset + bytes > reserved_) return nullptr;
      erase_free(std::prev(free_.end()));
    }
    if (offset + bytes > reserved_) return nullptr;
    end_ = offset + bytes;
  }
  live_.emplace(offset, bytes);
  usage_.live += bytes;
  usage_.peak = std::max(usage_.peak, usage_.live);
  usage_.held = std::max(usage_.held, end_);
  ++usage_.allocations;
  return base_ + offset;
}

void Region::release(void* memory) {
  const auto block = live_.find(static_cast<std::byte*>(memory) - base_);
  if (block == live_.end()) return;
  int64_t offset = block->first, bytes = block->second;
  live_.erase(block);
  usage_.live -= bytes;
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    erase_free(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      erase_free(previous);
    }
  }
  insert_free(offset, bytes);
}

void Region::pause(PauseMode mode) {
  kept_ = mode == PauseMode::kKeep;
  if (kept_) {
    backup_.resize(static_cast<size_t>(usage_.live));
    std::byte* to = backup_.data();
    for (const auto& [offset, bytes] : live_) {
      std::memcpy(to, base_ + offset, static_cast<size_t>(bytes));
      to += bytes;
    }
  }
  ::madvise(base_, static_cast<size_t>(reserved_), MADV_DONTNEED);
  ::mprotect(base_, static_cast<size_t>(reserved_), PROT_NONE);
  usage_.paused = true;
  usage_.held = 0;
}

void Region::resume() {
  ::mprotect(base_, static_cast<size_t>(reserved_), PROT_READ | PROT_WRITE);
  if (kept_) {
    const std::byte* from = backup_.data();
    for (const auto& [offset, bytes] : live_) {
      std::memcpy(base_ + offset, from, static_cast<size_t>(bytes));
      from += bytes;
    }
    backup_ = {};
  }
  usage_.paused = false;
  usage_.held = end_;
}

int64_t Region::trim() {
  int64_t given = 0;
  for (const auto& [offset, bytes] : free_) {
    const int64_t begin = round_up(offset, kPage), end = (offset + bytes) / kPage * kPage;
    if (end <= begin) continue;
    ::madvise(base_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
    given += end - begin;
  }
  return given;
}

}  // namespace temper::device
