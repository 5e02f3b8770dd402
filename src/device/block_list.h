#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace temper::device {

// Which parts of one address range are handed out: best fit, neighbouring free blocks merge. Knows offsets
// only; the rooms put memory behind them. Not thread-safe: pools lock.
class BlockList {
 public:
  // A block of `bytes` rounded up to the alignment, within the first `capacity` bytes; nothing when it does
  // not fit. `end()` may grow.
  struct Block {
    int64_t offset = 0, bytes = 0;
  };
  std::optional<Block> take(int64_t bytes, int64_t capacity);
  int64_t give(int64_t offset);  // frees a block; its bytes, 0 when there is none

  int64_t end() const { return end_; }                              // first byte never handed out
  const std::map<int64_t, int64_t>& live() const { return live_; }  // offset → bytes
  const std::map<int64_t, int64_t>& free() const { return free_; }

 private:
  void insert_free(int64_t offset, int64_t bytes);
  void erase_free(std::map<int64_t, int64_t>::iterator block);

  int64_t end_ = 0;
  std::map<int64_t, int64_t> free_, live_;
  std::set<std::pair<int64_t, int64_t>> by_size_;  // free blocks as (bytes, offset)
};

int64_t round_up(int64_t value, int64_t to);

}  // namespace temper::device
