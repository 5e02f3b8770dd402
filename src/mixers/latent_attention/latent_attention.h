#pragma once
#include "layers/block.h"

namespace temper::mixers {

// Multi-head latent attention (MLA; DeepSeek-AI, 2024, arXiv:2405.04434), causal. Keys and values of all
// heads are linear in a latent of few entries, and a sequence remembers the latent. With pe for the part of a
// head that is rotated, and norm for RMS norms:
//   q[h] = q_b(norm(q_a(x)))                  or, without q_lora_rank, q(x): [q_nope | q_pe] for each head
//   latent, k_pe = norm(c), pe                where kv_a(x) = [c | pe], and pe is one for all heads
//   k[h], v[h] = [k_nope | rotated k_pe], v   where kv_b(latent) = [k_nope | v] for each head
//   y = o(softmax(softmax_scale · q kᵀ) v)
// Training and prefill compute k and v. A step of decoding works on the latents that the sequence left
// (ops/latent_decode). Hugging Face's names are self_attn.*.
struct LatentAttentionConfig {
  int64_t hidden = 0, num_heads = 0;
  int64_t q_lora_rank = 0;  // 0: queries come from x by one linear
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  bool bias = false;       // of q_a, kv_a and o
  double norm_eps = 1e-6;  // of the latents' norms
  layers::RopeConfig rope;
  bool rope_interleave = false;  // files hold the pairs of a rotation next to each other
  double softmax_scale = 1;

  bool operator==(const LatentAttentionConfig&) const = default;
};

std::shared_ptr<const layers::Mixer> latent_attention(const LatentAttentionConfig& config);

}  // namespace temper::mixers
