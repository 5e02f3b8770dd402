#pragma once
#include "layers/block.h"

namespace temper::mixers {

// Causal softmax attention with grouped queries and rotary positions: q|k|v from one linear, an optional RMS
// norm of each query and key head (Qwen3), an optional sliding window. Hugging Face's names are self_attn.*.
struct AttentionConfig {
  int64_t hidden = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t window = 0;  // 0: all tokens before
  bool qkv_bias = false, output_bias = false;
  bool qk_norm = false;
  double norm_eps = 1e-6;  // of qk_norm
  layers::RopeConfig rope;

  bool operator==(const AttentionConfig&) const = default;
};

std::shared_ptr<const layers::Mixer> attention(const AttentionConfig& config);

}  // namespace temper::mixers
