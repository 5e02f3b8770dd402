# See cmake/rooms.cmake.
set(device_code_together
  primitives_counts,primitives_matmul,primitives_rows,primitives_nf4
  primitives_quantized,primitives_amax,latent_tiles,expert_swiglu
  dropout,embedding,global_norm,load_balancing_loss
  latent_heads,causal_conv1d_update,tensors
  latent_rotary,delta_gates
  recurrent_gated_delta_rule,moe_router_gradient
  paged_decode,paged_attention
  delta_chunk_gradients,expert_products
  chunk_gated_delta_rule,paged_prompt
  sample,token_log_probs
  sample_in_order,delta_prepare)
