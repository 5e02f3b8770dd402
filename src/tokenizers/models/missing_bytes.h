#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizers/models/bpe_options.h"
#include "tokenizers/models/character_tokens.h"
#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// The bytes for which a byte-level vocabulary has no token, and what they become.
class MissingBytes {
 public:
  // Without a token are those whose id is kNoByte; the 13 that no UTF-8 has never count. Errors start with
  // `where`.
  MissingBytes(const ByteIds& ids, const Vocabulary& vocabulary, const BpeOptions& options,
               std::string_view where);

  bool are_in(std::string_view piece) const {
    if (!any_) return false;
    for (const char byte : piece)
      if (missing_[static_cast<unsigned char>(byte)]) return true;
    return false;
  }
  bool has(char byte) const { return missing_[static_cast<unsigned char>(byte)]; }
  // The tokens <0x00> to <0xFF> of how the byte is spelled; empty where these do not exist.
  const std::vector<int32_t>& fallback(char byte) const {
    return fallbacks_[static_cast<unsigned char>(byte)];
  }
  int32_t unk() const { return unk_; }  // kNoByte where bytes without a token and fallback are dropped
  bool fuse_unk() const { return fuse_unk_; }

 private:
  std::array<bool, 256> missing_{};
  std::array<std::vector<int32_t>, 256> fallbacks_;
  bool any_ = false, fuse_unk_ = false;
  int32_t unk_ = kNoByte;
};

}  // namespace temper::tokenizers
