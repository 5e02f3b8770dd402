#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "device/memory.h"

namespace temper::device {

// One tag's address range with a best-fit free list. Not thread-safe: the pool locks.
class Region {
 public:
  explicit Region(int64_t reserve_bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  void* allocate(int64_t bytes);  // null when the reserved addresses are used up
  void release(void* memory);
  void pause(PauseMode mode);
  void resume();
  int64_t trim();  // gives the pages of free blocks back; how many bytes
  bool paused() const { return usage_.paused; }
  const RegionUsage& usage() const { return usage_; }
  void reset_peak() { usage_.peak = usage_.live; }

 private:
  void insert_free(int64_t offset, int64_t bytes);
  void erase_free(std::map<int64_t, int64_t>::iterator block);

  std::byte* base_ = nullptr;
  int64_t reserved_ = 0;
  int64_t end_ = 0;                              // first byte never handed out
  std::map<int64_t, int64_t> free_;              // offset → bytes
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, offset)
  std::map<int64_t, int64_t> live_;              // offset → bytes
  std::vector<std::byte> backup_;                // contents of live blocks while paused with kKeep
  bool kept_ = false;
  RegionUsage usage_;
};

}  // namespace temper::device
