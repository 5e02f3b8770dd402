#pragma once
#include "layers/block.h"

namespace temper::mixers {

// Gated delta networks (Yang, Kautz and Hatamizadeh, 2024, arXiv:2412.06464) as Qwen3-Next and Qwen3.5 have
// them: a causal convolution of q, k and v, the gated delta rule with grouped value heads (ops/
// chunk_gated_delta_rule), a norm with the gate z, and the output projection. What a sequence leaves behind
// does not grow with it. Hugging Face's names are linear_attn.*.
struct GatedDeltaConfig {
  int64_t hidden = 0;
  int64_t key_heads = 0, heads = 0;  // of values, which are a multiple of the keys'
  int64_t key_dim = 0, value_dim = 0;
  int64_t width = 4;  // of the convolution
  double norm_eps = 1e-6;
  // Files have in_proj_qkvz and in_proj_ba, whose rows are those of the first key head (q, k, the v of its
  // value heads, their z; their b, their a), then those of the second; otherwise in_proj_qkv, _z, _b and _a.
  bool by_key_head = false;

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return heads * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }  // of the convolution
  // Of the heads that each of several context ranks has for all tokens.
  GatedDeltaConfig on_context_ranks(int ranks) const {
    GatedDeltaConfig own = *this;
    own.key_heads = key_heads < ranks ? 1 : div_exact(key_heads, ranks);
    own.heads = div_exact(heads, ranks);
    return own;
  }
  bool operator==(const GatedDeltaConfig&) const = default;
};

std::shared_ptr<const layers::Mixer> gated_delta(const GatedDeltaConfig& config);

}  // namespace temper::mixers
