#pragma once
#include "layers/block.h"

namespace temper::mixers {

// Causal softmax attention with grouped queries and rotary positions: q|k|v from one linear, an optional RMS
// norm of queries and keys, by head (Qwen3) or of all heads together (OLMo 2), an optional sliding window.
// What is rotated of a head is the rope's. Hugging Face's names are self_attn.*.
struct AttentionConfig {
  struct Norm {
    bool exists = false;
    bool all_heads = false;  // together, not each by itself
    double eps = 1e-6, offset = 0;

    bool operator==(const Norm&) const = default;
  };

  int64_t hidden = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t window = 0;  // 0: all tokens before
  bool qkv_bias = false, output_bias = false;
  Norm norm = {};               // of queries and keys
  double scale = 0;             // of scores; 0: 1 / sqrt(head_dim)
  bool interleaved = false;     // neighbours are rotated together, not halves
  bool fused_in_files = false;  // files have one qkv_proj
  // Each query head of q_proj has as wide a gate behind it, whose sigmoid multiplies the head's result.
  bool output_gate = false;
  bool sinks = false;  // learned logits of the softmax, one a head (ops/attention)
  layers::RopeConfig rope;

  bool operator==(const AttentionConfig&) const = default;
};

std::shared_ptr<const layers::Mixer> attention(const AttentionConfig& config);

}  // namespace temper::mixers
