#pragma once
#include <string>

namespace temper::tokenizers {

// What a byte-pair encoding makes of what has no token: the tokens <0x00> to <0xFF> of its bytes, or else
// unk_token.
struct BpeOptions {
  std::string unk_token = {};  // "": it is dropped
  bool fuse_unk = false;       // neighbours become one unk_token
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is itself a token is that token, whatever the merges say
};

}  // namespace temper::tokenizers
