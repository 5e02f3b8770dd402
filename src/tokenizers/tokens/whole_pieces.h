#pragma once
#include <string_view>
#include <vector>

#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// The tokens of the model by their bytes, for tokenizers that take a piece that is a token as it is.
class WholePieces {
 public:
  explicit WholePieces(const Vocabulary& vocabulary);  // which must outlive it
  int32_t find(std::string_view piece) const;          // -1 when it is no token

 private:
  struct Entry {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  const Vocabulary* vocabulary_;
  std::vector<Entry> entries_;  // open addressing
  size_t longest_ = 0;
};

}  // namespace temper::tokenizers
