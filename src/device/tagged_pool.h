#pragma once
#include <array>
#include <memory>
#include <mutex>

#include "device/block_list.h"
#include "device/memory.h"

namespace temper::device {

// One tag's address range on one device. Rooms say how memory comes and goes behind addresses.
class Region {
 public:
  virtual ~Region() = default;
  void* allocate(int64_t bytes);  // null when addresses or memory are used up
  void release(void* memory);
  void pause(PauseMode mode);
  void resume();
  virtual int64_t trim() = 0;  // gives memory behind free blocks back; how many bytes
  bool paused() const { return usage_.paused; }
  const RegionUsage& usage() const { return usage_; }
  void reset_peak() { usage_.peak = usage_.live; }

 protected:
  Region(std::byte* base, int64_t reserved) : base_(base), reserved_(reserved) {}
  virtual bool back(
      int64_t bytes) = 0;       // memory behind the first `bytes` bytes; false when there is none left
  virtual void save() = 0;      // the live blocks' contents, to host memory
  virtual void restore() = 0;   // and back; forgets them
  virtual void withdraw() = 0;  // takes all memory away, keeps the addresses

  std::byte* const base_;
  const int64_t reserved_;
  BlockList blocks_;
  RegionUsage usage_;

 private:
  bool kept_ = false;
};

// A pool of one region per tag, with a limit over all of them.
class TaggedPool : public Pool {
 public:
  void* allocate(int64_t bytes, MemoryTag tag) override;
  void release(void* memory, MemoryTag tag) noexcept override;
  void pause(MemoryTag tag, PauseMode mode) override;
  void resume(MemoryTag tag) override;
  MemoryUsage usage() const override;
  void reset_peak() override;
  int64_t peak_held() const override;
  void set_limit(int64_t bytes) override;
  int64_t limit() const override;

 protected:
  // Regions are made by the room; the limit is kept below what the device has.
  using MakeRegion = std::unique_ptr<Region> (*)(int64_t reserve_bytes);
  TaggedPool(int64_t limit, MakeRegion make);

 private:
  Region& at(MemoryTag tag) { return *regions_[static_cast<size_t>(tag)]; }
  MemoryUsage usage_unlocked() const;
  int64_t live() const;
  int64_t held() const;
  [[noreturn]] void fail_out_of_memory(int64_t bytes, MemoryTag tag) const;

  mutable std::mutex mutex_;
  int64_t limit_, peak_held_ = 0;
  std::array<std::unique_ptr<Region>, kNumMemoryTags> regions_;
};

}  // namespace temper::device
