#include "tokenizers/tokens/prefix_trie.h"

#include <algorithm>

namespace temper::tokenizers {

PrefixTrie::PrefixTrie(Entries entries) {
  std::sort(entries.begin(), entries.end());
  nodes_.emplace_back();
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };
  // Breadth first, so that the children of a node stand side by side; no recursion, as strings may be long.
  std::vector<Range> ranges{{0, entries.size(), 0, 0}};
  for (size_t next = 0; next < ranges.size(); ++next) {
    auto [begin, end, depth, node] = ranges[next];
    if (begin < end && entries[begin].first.size() == depth) nodes_[node].value = entries[begin++].second;
    nodes_[node].children = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const auto byte = static_cast<unsigned char>(entries[begin].first[depth]);
      size_t stop = begin;
      while (stop < end && static_cast<unsigned char>(entries[stop].first[depth]) == byte) ++stop;
      ranges.push_back({begin, stop, depth + 1, static_cast<uint32_t>(nodes_.size())});
      nodes_.push_back({0, 0, byte, kNone});
      ++nodes_[node].count;
      begin = stop;
    }
  }
}

uint32_t PrefixTrie::child(uint32_t node, unsigned char byte) const {
  const Node* first = nodes_.data() + nodes_[node].children;
  const Node* last = first + nodes_[node].count;
  const Node* found =
      std::lower_bound(first, last, byte, [](const Node& a, unsigned char b) { return a.byte < b; });
  return found != last && found->byte == byte ? static_cast<uint32_t>(found - nodes_.data()) : 0;
}

}  // namespace temper::tokenizers
