#pragma once
#include "layers/decoder_input.h"
#include "primitives/primitives.h"

namespace temper::layers {

// The documents of a pass as the tokens of one context rank see them, where it has the keys of all tokens:
// each piece of a document that the rank has is a document of its own, whose keys end with its last query.
struct ContextKeys {
  Tensor cu_seqlens_q, cu_seqlens_k;  // [pieces + 1] int32, on the CPU
  primitives::ChosenRows seen;        // which of all tokens have these keys: [cu_seqlens_k's last] of them
};

ContextKeys context_keys(const DecoderInput& input);

}  // namespace temper::layers
