"""Models that the GPU comparison trains: published configurations, and small ones to try."""


def dense(vocab, hidden, inner, layers, heads, tied=False):
    """As in bench/shapes.h; heads: of queries, of keys and values, and their width."""
    return "qwen3", dict(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads[0], num_key_value_heads=heads[1], head_dim=heads[2], tie_word_embeddings=tied,
        rope_theta=1e6, max_position_embeddings=4096)


def mixture(model, experts, top_k):
    """A dense model's shape with experts instead of its MLPs, each as wide as they were."""
    kind, sizes = model
    return f"{kind}_moe", dict(sizes, moe_intermediate_size=sizes["intermediate_size"], num_experts=experts,
                               num_experts_per_tok=top_k, norm_topk_prob=True, output_router_logits=False)


def latent(vocab, hidden, inner, layers, heads, latent_rank, experts):
    """DeepSeek-V3's architecture without a low rank of queries, as Moonlight has it; experts: how many, how many a
    token gets, and their width."""
    return "deepseek_v3", dict(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=None, kv_lora_rank=latent_rank,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=experts[0],
        num_experts_per_tok=experts[1], moe_intermediate_size=experts[2], n_shared_experts=2, first_k_dense_replace=1,
        n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.446, rope_theta=5e4,
        rope_interleave=True, max_position_embeddings=8192)


def hybrid(kind, vocab, hidden, layers, heads, delta_heads, **sizes):
    """Three layers of the gated delta rule to one of attention; heads: of queries, of keys and values, and their width;
    delta_heads: of keys, of values."""
    return kind, dict(
        dict(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads[0],
             num_key_value_heads=heads[1], head_dim=heads[2], linear_num_key_heads=delta_heads[0],
             linear_num_value_heads=delta_heads[1], linear_key_head_dim=128, linear_value_head_dim=128,
             linear_conv_kernel_dim=4, layer_types=(["linear_attention"] * 3 + ["full_attention"]) * (layers // 4),
             rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
             max_position_embeddings=8192), **sizes)


def delta_alone(model):
    """A hybrid whose layers are all of the gated delta rule, for long sequences."""
    kind, sizes = model
    return kind, dict(sizes, layer_types=["linear_attention"] * sizes["num_hidden_layers"], max_position_embeddings=65536)


def hybrid_experts(experts, top_k, inner):
    """Of a hybrid mixture, whose shared expert is as wide as the others."""
    return dict(num_experts=experts, num_experts_per_tok=top_k, moe_intermediate_size=inner,
                shared_expert_intermediate_size=inner, norm_topk_prob=True, output_router_logits=False,
                intermediate_size=inner, decoder_sparse_step=1, mlp_only_layers=[])


SHAPES = {
    "qwen3-0.6b": dense(151936, 1024, 3072, 28, (16, 8, 128), tied=True),
    "qwen3-1.7b": dense(151936, 2048, 6144, 28, (16, 8, 128), tied=True),
    "qwen3-8b": dense(151936, 4096, 12288, 36, (32, 8, 128)),
    "small": dense(32000, 512, 1536, 8, (8, 4, 64), tied=True),
    # The first 12 layers of two published mixtures.
    "qwen3-30b-a3b-12": mixture(dense(151936, 2048, 768, 12, (32, 4, 128)), 128, 8),
    "moonlight-12": latent(163840, 2048, 11264, 12, 16, 512, (64, 6, 1408)),
    # The first 4 layers of Qwen3-Next-80B-A3B, and a dense Qwen3.5 of 2 billion weights.
    "qwen3-next-4": hybrid("qwen3_next", 151936, 2048, 4, (16, 2, 256), (16, 32), **hybrid_experts(512, 10, 512)),
    "qwen3.5-2b": hybrid("qwen3_5_text", 248320, 2048, 24, (8, 2, 256), (16, 16), intermediate_size=6144,
                         tie_word_embeddings=True),
    "qwen3.5-2b-delta": delta_alone(hybrid("qwen3_5_text", 248320, 2048, 24, (8, 2, 256), (16, 16),
                                           intermediate_size=6144, tie_word_embeddings=True)),
    "small-delta": delta_alone(hybrid("qwen3_5_text", 32000, 512, 4, (4, 2, 128), (2, 4), intermediate_size=1536)),
    "small-hybrid": hybrid("qwen3_next", 32000, 512, 4, (4, 2, 128), (2, 4), **hybrid_experts(16, 4, 384)),
    "small-dense-hybrid": hybrid("qwen3_5_text", 32000, 512, 4, (4, 2, 128), (4, 4), intermediate_size=1536,
                                 tie_word_embeddings=True),
    "demo-hybrid": hybrid("qwen3_5_text", 512, 256, 4, (4, 2, 64), (2, 4), intermediate_size=768,
                          tie_word_embeddings=True),
    "small-mixture": mixture(dense(32000, 512, 384, 4, (8, 4, 64)), 16, 4),
    "small-latent": latent(32000, 512, 1536, 4, 4, 128, (16, 4, 384)),
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]  # stacked parameters, for PEFT's target_parameters


def is_mixture(shape):
    return SHAPES[shape][0] not in ("qwen3", "qwen3_5_text")
