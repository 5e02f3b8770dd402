#include "device/block_list.h"

#include <algorithm>

namespace temper::device {
namespace {

// Of a cache line; device kernels load 16 bytes at a time from any of these addresses.
constexpr int64_t kAlignment = 64;

}  // namespace

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

namespace {

template <class Tree>
void add_nodes(std::vector<typename Tree::node_type>& spare, size_t wanted, size_t in_trees) {
  // Places before nodes: each node that is there has one, also where the next one finds no memory.
  const size_t all = std::max(spare.size(), wanted) + in_trees;
  if (spare.capacity() < all) spare.reserve(2 * all);
  Tree tree;
  while (spare.size() < wanted) {
    tree.insert(typename Tree::value_type{});
    spare.push_back(tree.extract(tree.begin()));
  }
}

}  // namespace

void BlockList::prepare() {
  add_nodes<Blocks>(spare_blocks_, 2, free_.size() + live_.size());
  add_nodes<Sizes>(spare_sizes_, live_.size() + 2, by_size_.size());
}

void BlockList::insert(Blocks& blocks, int64_t offset, int64_t bytes) {
  Blocks::node_type node = std::move(spare_blocks_.back());
  spare_blocks_.pop_back();
  node.key() = offset;
  node.mapped() = bytes;
  blocks.insert(std::move(node));
}

void BlockList::insert_free(int64_t offset, int64_t bytes) {
  insert(free_, offset, bytes);
  Sizes::node_type node = std::move(spare_sizes_.back());
  spare_sizes_.pop_back();
  node.value() = {bytes, offset};
  by_size_.insert(std::move(node));
}

void BlockList::erase_free(Blocks::iterator block) {
  spare_sizes_.push_back(by_size_.extract({block->second, block->first}));
  erase(free_, block);
}

std::optional<BlockList::Block> BlockList::take(int64_t bytes, int64_t capacity) {
  prepare();
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
    const bool extend = !free_.empty() && free_.rbegin()->first + free_.rbegin()->second == end_;
    if (extend) offset = free_.rbegin()->first;
    if (offset + bytes > capacity) return std::nullopt;
    if (extend) erase_free(std::prev(free_.end()));
    end_ = offset + bytes;
  }
  insert(live_, offset, bytes);
  return Block{offset, bytes};
}

int64_t BlockList::give(int64_t offset) noexcept {
  const auto block = live_.find(offset);
  if (block == live_.end()) return 0;
  const int64_t given = block->second;
  int64_t bytes = given;
  erase(live_, block);
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
  return given;
}

}  // namespace temper::device
