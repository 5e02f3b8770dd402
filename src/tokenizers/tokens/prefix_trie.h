#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper::tokenizers {

// Finds which of many strings a text begins with.
class PrefixTrie {
 public:
  using Entries = std::vector<std::pair<std::string_view, int32_t>>;
  explicit PrefixTrie(Entries entries);  // strings that are not empty, each once

  // Calls use(length, value) for each that `text` begins with, the shortest first.
  template <class Use>
  void prefixes(std::string_view text, Use&& use) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value != kNone) use(i + 1, nodes_[node].value);
    }
  }

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    uint32_t children = 0;  // the first; they stand side by side, sorted by their bytes
    uint16_t count = 0;
    unsigned char byte = 0;
    int32_t value = kNone;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;  // 0 when there is none
  std::vector<Node> nodes_;
};

}  // namespace temper::tokenizers
