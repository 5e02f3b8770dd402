#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizers/text/byte_span.h"

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

}  // namespace temper::tokenizers
