#pragma once
#include "layers/decoder_input.h"
#include "primitives/primitives.h"

namespace temper::layers {

// The documents of a pass as some of its tokens see them, where the keys of all tokens are: each piece of a
// document among those tokens is a document of its own, whose keys end with its last query.
struct ContextKeys {
  Tensor cu_seqlens_q, cu_seqlens_k;  // [pieces + 1] int32, on the CPU
  primitives::ChosenRows seen;        // which of all tokens have these keys: [cu_seqlens_k's last] of them
};

// `own`: the tokens, rising.
ContextKeys context_keys(const DecoderInput& input, std::span<const TokenRange> own);

}  // namespace temper::layers
