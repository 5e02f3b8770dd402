#pragma once
#include "mixers/latent_attention/latent_attention.h"

namespace temper::mixers {

inline constexpr const char* kLatentAttention = "attention";  // the module of the ops that are no linear's

// Widths that the configuration leads to, for all heads together.
struct LatentSizes {
  explicit LatentSizes(const LatentAttentionConfig& c)
      : q(c.num_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim)),
        kv(c.num_heads * (c.qk_nope_head_dim + c.v_head_dim)),
        y(c.num_heads * c.v_head_dim),
        latent(c.kv_lora_rank + c.qk_rope_head_dim) {
    // q_a has kv_a's bias and joins it in one linear; q, which has none, does where kv_a has none, either.
    if (c.q_lora_rank > 0) {
      of_down = query_in = c.q_lora_rank;
    } else if (c.bias) {
      query_in = c.hidden;
    } else {
      of_down = q;
    }
  }

  int64_t q, kv, y;
  int64_t latent;        // of kv_a: the latent and the shared part of the keys
  int64_t of_down = 0;   // what the linear `down` computes besides: q_a, q, or nothing
  int64_t query_in = 0;  // of the linear `query`; 0: there is none
};

std::unique_ptr<layers::BoundMixer> bind_latent_attention(const LatentAttentionConfig& config,
                                                          const layers::Binding& binding);

}  // namespace temper::mixers
