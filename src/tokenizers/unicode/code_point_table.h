#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace temper::tokenizers {

constexpr size_t kCodePoints = 0x110000;

// A byte for every code point, in two stages: blocks that are equal are kept once.
class CodePointTable {
 public:
  explicit CodePointTable(const std::vector<uint8_t>& values);  // kCodePoints of them
  uint8_t operator[](char32_t c) const {
    return blocks_[(size_t{index_[c >> kBlockBits]} << kBlockBits) | (c & (kBlock - 1))];
  }

 private:
  static constexpr size_t kBlockBits = 7, kBlock = size_t{1} << kBlockBits;
  std::array<uint16_t, kCodePoints / kBlock> index_{};
  std::vector<uint8_t> blocks_;
};

}  // namespace temper::tokenizers
