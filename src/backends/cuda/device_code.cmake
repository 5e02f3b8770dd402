# See cmake/rooms.cmake.
set(device_code_together
  primitives/primitives_counts,primitives/primitives_matmul,primitives/primitives_rows,primitives/primitives_nf4
  primitives/primitives_quantized,primitives/primitives_amax,attention/latent_tiles,experts/expert_swiglu
  dropout,embedding,global_norm,experts/load_balancing_loss
  attention/latent_heads,delta/causal_conv1d_update,primitives/tensors
  attention/latent_rotary,delta/delta_gates
  delta/recurrent_gated_delta_rule,experts/moe_router_gradient
  attention/paged_decode,attention/paged_attention
  delta/delta_chunk_gradients,experts/expert_products
  delta/chunk_gated_delta_rule,attention/paged_prompt
  sampling/sample,sampling/token_log_probs
  sampling/sample_in_order,delta/delta_prepare)
