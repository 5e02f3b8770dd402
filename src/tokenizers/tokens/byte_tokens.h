#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// The tokens <0x00> to <0xFF> that stand for the bytes of characters without a token.
class ByteTokens {
 public:
  ByteTokens() { ids_.fill(kNone); }
  explicit ByteTokens(const Vocabulary& vocabulary);
  bool covers(std::string_view bytes) const;  // each byte has one
  bool complete() const;
  int32_t id(char byte) const { return ids_[static_cast<unsigned char>(byte)]; }

 private:
  static constexpr int32_t kNone = -1;
  std::array<int32_t, 256> ids_;
};

// The byte that a token spelled <0x0A> represents.
std::optional<char> byte_of_spelling(std::string_view spelling);

}  // namespace temper::tokenizers
