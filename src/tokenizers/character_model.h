#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/byte_span.h"
#include "tokenizers/vocabulary.h"

namespace temper::tokenizers {

// A model whose tokens are spelled as text is, in characters.
class CharacterModel {
 public:
  virtual ~CharacterModel() = default;
  // Appends the tokens of one piece of text and, unless `spans` is null, which bytes of it each covers.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids,
                      std::vector<ByteSpan>* spans) const = 0;
  virtual size_t num_dropped(std::string_view) const { return 0; }  // bytes of a piece that become no token
};

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

// The byte that a token spelled <0x0A> stands for.
std::optional<char> byte_of_spelling(std::string_view spelling);

}  // namespace temper::tokenizers
