"""Models that the GPU comparison trains: published configurations, and small ones to try."""


def dense(vocab, hidden, inner, layers, heads, kv_heads, head_dim, tied):
    """As in bench/shapes.h."""
    return "qwen3", dict(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, tie_word_embeddings=tied,
        rope_theta=1e6, max_position_embeddings=4096)


def mixture(vocab, hidden, inner, layers, heads, kv_heads, head_dim, experts, top_k):
    kind, sizes = dense(vocab, hidden, inner, layers, heads, kv_heads, head_dim, False)
    return f"{kind}_moe", dict(sizes, moe_intermediate_size=inner, num_experts=experts, num_experts_per_tok=top_k,
                               norm_topk_prob=True, output_router_logits=False)


def latent(vocab, hidden, inner, layers, heads, latent_rank, expert_inner, experts, top_k):
    """DeepSeek-V3's architecture without a low rank of queries, as Moonlight has it."""
    return "deepseek_v3", dict(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=None, kv_lora_rank=latent_rank,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, moe_intermediate_size=expert_inner,
        n_routed_experts=experts, num_experts_per_tok=top_k, n_shared_experts=2, first_k_dense_replace=1, n_group=1,
        topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.446, rope_theta=5e4, rope_interleave=True,
        max_position_embeddings=8192)


SHAPES = {
    "qwen3-0.6b": dense(151936, 1024, 3072, 28, 16, 8, 128, True),
    "qwen3-1.7b": dense(151936, 2048, 6144, 28, 16, 8, 128, True),
    "qwen3-8b": dense(151936, 4096, 12288, 36, 32, 8, 128, False),
    "small": dense(32000, 512, 1536, 8, 8, 4, 64, True),
    # The first 12 layers of two published mixtures.
    "qwen3-30b-a3b-12": mixture(151936, 2048, 768, 12, 32, 4, 128, 128, 8),
    "moonlight-12": latent(163840, 2048, 11264, 12, 16, 512, 1408, 64, 6),
    "small-mixture": mixture(32000, 512, 384, 4, 8, 4, 64, 16, 4),
    "small-latent": latent(32000, 512, 1536, 4, 4, 128, 384, 16, 4),
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]  # stacked parameters, for PEFT's target_parameters


def is_mixture(shape):
    return SHAPES[shape][0] != "qwen3"
