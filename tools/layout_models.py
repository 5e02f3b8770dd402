"""Small models of every kind that ranks divide otherwise, with a layer for each part of the longest pipeline, and the ways in
which tools/sweep_layouts.py trains them."""
import json

COMMON = {
    "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 64,
    "max_position_embeddings": 256, "num_hidden_layers": 8, "rms_norm_eps": 1e-6, "vocab_size": 64,
    "attention_bias": False, "bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False,
}
ROUTED = {"moe_intermediate_size": 32, "num_experts_per_tok": 2, "norm_topk_prob": True}
WINDOWS = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"] * 4}  # shorter than documents
MODELS = {
    "dense": COMMON | {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 10000.0},
    "windows": COMMON | WINDOWS | {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 8,
        "rope_theta": 10000.0, "rope_local_base_freq": 100.0, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "tie_word_embeddings": True},
    "mixture": COMMON | ROUTED | {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 8, "rope_theta": 10000.0, "num_experts": 8,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.02},
    "sinks": COMMON | WINDOWS | {
        "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 10000.0, "rope_scaling": {"rope_type": "default"},
        "attention_bias": True, "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02, "swiglu_limit": 7.0},
    "latent": COMMON | ROUTED | {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 8, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4,
        "topk_group": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "rope_theta": 10000.0,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    "hybrid": COMMON | ROUTED | {
        "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "num_experts": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.02,
        "shared_expert_intermediate_size": 16, "layer_types": ["linear_attention", "full_attention"] * 4,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_num_key_heads": 8,
        "linear_num_value_heads": 16, "linear_value_head_dim": 8},
}
DENSE = ["dense", "windows"]  # without experts
LINEARS = {"name": "linears", "rank": 4, "dropout": 0.1}
EXPERTS = {"name": "experts", "rank": 3,
           "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"]}
NO_ADAPTED_EXPERTS = ["dense", "windows", "sinks"]
REWARDS = [{"type": "length", "target": 5}]  # a run needs some; rows that verify a layout have made-up advantages
WAYS = {
    "full": lambda model: [],
    # AdamW makes whole steps of gradients above its eps: clipped, their rounding lies further below it. The gradients
    # of A are proportional to such steps of B.
    "adapters": lambda model: ["--train.max_grad_norm", "0.01", "--adapters",
                               json.dumps([LINEARS] if model in NO_ADAPTED_EXPERTS else [LINEARS, EXPERTS])],
    "preferences": lambda model: ["--recipe", "preference", "--data.max_length", "64"],
    "grpo": lambda model: ["--recipe", "grpo", "--data.max_length", "64", "--grpo.rewards", json.dumps(REWARDS),
                           "--grpo.sampling.max_new_tokens", "8", "--grpo.kl.beta", "0.1", "--grpo.policy.entropy", "0.01"],
}
