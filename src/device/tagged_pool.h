#pragma once
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/block_list.h"
#include "device/last_uses.h"
#include "device/memory.h"

namespace temper::device {

// An address range on one device. Rooms say how memory comes and goes behind addresses.
class Region {
 public:
  virtual ~Region() = default;
  void* allocate(int64_t bytes);  // null when addresses or memory are used up
  void release(void* memory);
  void used(void* memory);     // by the current stream, too
  void pause(PauseMode mode);  // an Error of save() leaves it as it was
  bool resume();               // false, and still paused, where there is no memory for it
  int64_t trim();              // gives memory behind free blocks back; how many bytes
  bool paused() const { return paused_; }
  int64_t live() const { return live_; }        // bytes in use
  int64_t held() const { return held_; }        // bytes taken from the device, live or kept for reuse
  virtual int64_t backup() const { return 0; }  // RegionUsage::backup

 protected:
  // `streams`: of the device; null where it has none.
  Region(std::byte* base, int64_t reserved, Streams* streams)
      : base_(base), reserved_(reserved), uses_(streams) {}
  // Memory behind the bytes from `begin` to `end`, a block or all of them; raises held_. False when there is
  // none left.
  virtual bool back(int64_t begin, int64_t end) = 0;
  // What is in these blocks (offset → bytes), to host memory; and back, when some of them may have been
  // released. restore() forgets it.
  using Blocks = std::map<int64_t, int64_t>;
  virtual void save(const Blocks& blocks, int64_t bytes) = 0;
  virtual void restore(const Blocks& blocks) = 0;
  // Both may wait for the device's work.
  virtual void withdraw() = 0;  // takes all memory away, keeps the addresses
  virtual void give_up() = 0;   // takes memory behind free blocks away; lowers held_

  std::byte* const base_;
  const int64_t reserved_;
  BlockList blocks_;
  int64_t live_ = 0, held_ = 0;

 private:
  LastUses uses_;
  bool paused_ = false, kept_ = false;
  Blocks kept_blocks_;  // of a region that is paused with what is in it
};

// A pool of one region per tag, with a limit over all of them. Gradients share the region of activations:
// while backward runs, they move into the memory that activations leave.
class TaggedPool : public Pool {
 public:
  void* allocate(int64_t bytes, MemoryTag tag) override;
  void release(void* memory, MemoryTag tag) noexcept override;
  void used(void* memory, MemoryTag tag) override;
  void pause(MemoryTag tag, PauseMode mode) override;
  void resume(MemoryTag tag) override;
  MemoryUsage usage() const override;
  void reset_peak() override;
  int64_t peak_live() const override;
  int64_t peak_held() const override;
  void set_limit(int64_t bytes) override;
  int64_t limit() const override;

 protected:
  // Regions are made by the room; the limit is kept below what the device has.
  using MakeRegion = std::unique_ptr<Region> (*)(int64_t reserve_bytes);
  // `addresses`: that all regions together may reserve; -1: plenty. `limited_by`: whose limit it is, where it
  // is not what the device has.
  TaggedPool(int64_t limit, MakeRegion make, int64_t addresses = -1, std::string limited_by = "");

 private:
  Region* region_of(MemoryTag tag) const;  // null for a tag that has none of its own
  Region& at(MemoryTag tag) const;         // where its memory is
  Region& pausable(MemoryTag tag) const;
  void count(MemoryTag tag, int64_t bytes);
  MemoryUsage usage_unlocked() const;
  int64_t live() const;  // of regions that are not paused
  int64_t held() const;
  void trim();
  [[noreturn]] void fail_out_of_memory(int64_t bytes, MemoryTag tag) const;

  mutable std::mutex mutex_;
  const std::string limited_by_;
  int64_t limit_, peak_live_ = 0, peak_held_ = 0;
  MemoryUsage usage_ = {};  // live, peak and allocations of each tag
  std::array<std::unique_ptr<Region>, kNumMemoryTags> regions_;
};

}  // namespace temper::device
