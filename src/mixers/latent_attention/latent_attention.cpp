#include "mixers/latent_attention/latent_attention.h"

#include <algorithm>

#include "mixers/latent_attention/bound_latent_attention.h"
#include "mixers/latent_attention/latent_pages.h"
#include "ops/attention/attention.h"
#include "ops/latent_decode/latent_decode.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_heads/latent_rotary.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::mixers {
namespace {

class LatentAttention : public layers::Mixer {
 public:
  explicit LatentAttention(const LatentAttentionConfig& config) : c_(config), s_(config) {}

  void declare(layers::WeightScope& weights) const override {
    const WeightSource q{"self_attn.q_proj", s_.q}, q_a{"self_attn.q_a_proj", c_.q_lora_rank},
        kv_a{"self_attn.kv_a_proj_with_mqa", s_.latent};
    const int64_t of_head = c_.qk_nope_head_dim + c_.qk_rope_head_dim;
    std::vector<WeightSource> down{kv_a};
    if (s_.of_down > 0) down.insert(down.begin(), c_.q_lora_rank > 0 ? q_a : q);
    // Ranks divide queries by heads, and all of them have the latent.
    if (s_.of_down > 0 && c_.q_lora_rank == 0)
      weights.linear("attention.down",
                     {WeightAxis::divided("heads*qk_head_dim|latent"),
                      "hidden",
                      c_.hidden,
                      c_.bias,
                      {{s_.q, false, of_head}, {s_.latent, true, s_.latent}}},
                     down);
    else
      weights.linear("attention.down", {"latent", "hidden", c_.hidden, c_.bias}, down);
    if (s_.query_in > 0) {
      const WeightSource source = c_.q_lora_rank > 0 ? WeightSource{"self_attn.q_b_proj", s_.q} : q;
      weights.linear("attention.query",
                     {WeightAxis::divided("heads*qk_head_dim", of_head),
                      c_.q_lora_rank > 0 ? "latent" : "hidden", s_.query_in, false},
                     {source});
    }
    if (c_.q_lora_rank > 0)
      weights.vector("attention.q_a_norm.weight", "latent",
                     {{"self_attn.q_a_layernorm.weight", c_.q_lora_rank}});
    weights.vector("attention.kv_a_norm.weight", "latent",
                   {{"self_attn.kv_a_layernorm.weight", c_.kv_lora_rank}});
    weights.linear("attention.kv_b",
                   {WeightAxis::divided("heads*kv_head_dim", c_.qk_nope_head_dim + c_.v_head_dim), "latent",
                    c_.kv_lora_rank, false},
                   {{"self_attn.kv_b_proj", s_.kv}});
    weights.linear("attention.output",
                   {"hidden", WeightAxis::divided("heads*v_head_dim", c_.v_head_dim), s_.y, c_.bias},
                   {{"self_attn.o_proj", c_.hidden}});
    // Written by old releases, computed here from the configuration.
    weights.ignore("self_attn.rotary_emb.inv_freq", "computed from config.json");
  }

  std::shared_ptr<const layers::Mixer> on_tensor_ranks(int tensor) const override {
    LatentAttentionConfig own = c_;
    own.num_heads = div_exact(c_.num_heads, tensor);
    return latent_attention(own);
  }

  std::string refuses_context(int, int heads) const override {
    return layers::refuses_heads("heads of latent attention", c_.num_heads, heads);
  }

  void name_ops(layers::OpScope& ops) const override {
    const DType dtype = ops.dtype();
    const int64_t nope = c_.qk_nope_head_dim, rope = c_.qk_rope_head_dim, value = c_.v_head_dim;
    ops.linear("attention.down", c_.hidden, s_.of_down + s_.latent, c_.bias);
    if (s_.query_in > 0) ops.linear("attention.query", s_.query_in, s_.q, false);
    if (c_.q_lora_rank > 0) ops.use<ops::RmsNorm>("attention.q_a_norm", {dtype, c_.q_lora_rank});
    ops.use<ops::RmsNorm>("attention.kv_a_norm", {dtype, c_.kv_lora_rank});
    ops.linear("attention.kv_b", c_.kv_lora_rank, s_.kv, false);
    ops.linear("attention.output", s_.y, c_.hidden, c_.bias);
    ops.use<ops::LatentRotary>(kLatentAttention, {dtype, nope + rope, rope, c_.rope_interleave});
    ops.use<ops::LatentHeads>(kLatentAttention, {dtype, nope, rope, value});
    ops.use<ops::Attention>(kLatentAttention, {.dtype = dtype,
                                               .heads = c_.num_heads,
                                               .kv_heads = c_.num_heads,
                                               .head_dim = nope + rope,
                                               .value_dim = value});
    ops.use<ops::LatentDecode>(kLatentAttention, {dtype, c_.num_heads, nope, rope, value, c_.kv_lora_rank});
  }

  std::unique_ptr<layers::BoundMixer> bind(const layers::Binding& binding) const override {
    return bind_latent_attention(c_, binding);
  }

  std::unique_ptr<layers::MixerPages> make_pages(const layers::PageSizes& sizes, DType dtype,
                                                 Device device) const override {
    return std::make_unique<LatentPages>(sizes, s_.latent, dtype, device);
  }

  // Of the expanded form. Causal attention counts the half that is computed.
  double flops(std::span<const int32_t> document_lengths) const override {
    double tokens = 0, attended = 0;
    for (const int32_t length : document_lengths) {
      const auto n = static_cast<double>(length);
      tokens += n;
      attended += n * (n + 1) / 2;
    }
    const int64_t weights =
        c_.hidden * (s_.of_down + s_.latent + s_.y) + s_.query_in * s_.q + c_.kv_lora_rank * s_.kv;
    return 2 * tokens * static_cast<double>(weights) + 2 * attended * static_cast<double>(s_.q + s_.y);
  }

  Json::Object describe() const override {
    Json::Object all{{"num_attention_heads", c_.num_heads},
                     {"q_lora_rank", c_.q_lora_rank},
                     {"kv_lora_rank", c_.kv_lora_rank},
                     {"qk_nope_head_dim", c_.qk_nope_head_dim},
                     {"qk_rope_head_dim", c_.qk_rope_head_dim},
                     {"v_head_dim", c_.v_head_dim},
                     {"attention_bias", c_.bias},
                     {"eps of the latents' norms", c_.norm_eps},
                     {"rope_interleave", c_.rope_interleave},
                     {"softmax scale", c_.softmax_scale}};
    for (auto& entry : layers::describe(c_.rope)) all.push_back(std::move(entry));
    return all;
  }

 private:
  LatentAttentionConfig c_;
  LatentSizes s_;
};

}  // namespace

std::shared_ptr<const layers::Mixer> latent_attention(const LatentAttentionConfig& config) {
  return std::make_shared<LatentAttention>(config);
}

}  // namespace temper::mixers
