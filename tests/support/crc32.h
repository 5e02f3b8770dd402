#pragma once
#include <cstdint>

namespace temper {

// CRC-32 as zlib has it, of bytes that are added one by one: how recorded cases name the bytes of pictures.
class Crc32 {
 public:
  void add(uint8_t byte) {
    state_ ^= byte;
    for (int bit = 0; bit < 8; ++bit) state_ = (state_ >> 1) ^ (0xEDB88320U & (0U - (state_ & 1U)));
  }
  int64_t value() const { return static_cast<int64_t>(state_ ^ 0xFFFFFFFFU); }

 private:
  uint32_t state_ = 0xFFFFFFFFU;
};

}  // namespace temper
