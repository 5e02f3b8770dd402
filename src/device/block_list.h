#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

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
  // Frees a block; its bytes, 0 when there is none. Allocates nothing: what it needs was made by take(),
  // which alone may fail for want of memory, and then changes nothing.
  int64_t give(int64_t offset) noexcept;

  int64_t end() const { return end_; }                              // first byte never handed out
  const std::map<int64_t, int64_t>& live() const { return live_; }  // offset → bytes
  const std::map<int64_t, int64_t>& free() const { return free_; }

 private:
  using Blocks = std::map<int64_t, int64_t>;            // offset → bytes
  using Sizes = std::set<std::pair<int64_t, int64_t>>;  // (bytes, offset)
  void prepare();  // nodes and places for them: of a block that is taken, and of all that are given back
  void insert(Blocks& blocks, int64_t offset, int64_t bytes);
  void erase(Blocks& blocks, Blocks::iterator block) { spare_blocks_.push_back(blocks.extract(block)); }
  void insert_free(int64_t offset, int64_t bytes);
  void erase_free(Blocks::iterator block);

  int64_t end_ = 0;
  Blocks free_, live_;
  Sizes by_size_;  // free blocks
  // Nodes that are in no tree: a size for each live block, which may be free one day without a neighbour.
  std::vector<Blocks::node_type> spare_blocks_;
  std::vector<Sizes::node_type> spare_sizes_;
};

int64_t round_up(int64_t value, int64_t to);

}  // namespace temper::device
