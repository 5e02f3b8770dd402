#pragma once
#include <map>
#include <optional>
#include <vector>

#include "layers/decoder_input.h"
#include "primitives/primitives.h"

namespace temper::layers {

// Tokens that ranks give each other where each needs some of the others' alone.
struct TokenFetch {
  primitives::ChosenRows given;        // which of its own tokens the rank gives, for each rank in turn
  std::vector<int64_t> send, receive;  // how many, by rank; none to itself
};

// The documents of a pass as some of its tokens see them: each piece of a document among those tokens is a
// document of its own, whose keys end with its last query.
struct ContextKeys {
  Tensor cu_seqlens_q, cu_seqlens_k;  // [pieces + 1] int32, on the CPU
  // Which tokens have these keys, cu_seqlens_k's last of them: of all tokens or, where some are fetched, of
  // the rank's own tokens with those that come behind them, rank by rank.
  primitives::ChosenRows seen;
  std::optional<TokenFetch> fetch = {};  // none: all tokens come
};

// The same for every window of a pass's layers. `cut`: between the ranks that give each other keys.
class ContextDocuments {
 public:
  ContextDocuments(const DecoderInput& input, TokenCut cut);

  // Of queries that see `window` keys each, themselves among them; 0: all keys before them. Keys that no
  // query of the rank sees do not come. Made once: from one thread at a time.
  const ContextKeys& of(int64_t window) const;

 private:
  struct Pieces;
  Pieces pieces_of(int rank, int64_t window) const;
  ContextKeys made(int64_t window) const;

  std::vector<int32_t> starts_;     // cu_seqlens
  std::vector<int32_t> continued_;  // as of DecoderInput
  TokenCut cut_;
  mutable std::map<int64_t, ContextKeys> made_;  // by window
};

}  // namespace temper::layers
