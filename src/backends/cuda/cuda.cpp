#include "backends/cuda/cuda.h"

namespace temper::backends {

void register_cuda();
void register_cuda() {
  register_tensors();
  register_primitives();
  ops::kernels<ops::AdamW>().add("cuda", cuda_adamw_kernel());
  ops::kernels<ops::Attention>().add("cuda", cuda_attention_kernel());
  ops::kernels<ops::Attention>().add("cuda_invariant", cuda_invariant_attention_kernel());
  ops::kernels<ops::CausalConv1d>().add("cuda", cuda_causal_conv1d_kernel());
  ops::kernels<ops::CausalConv1dUpdate>().add("cuda", cuda_causal_conv1d_update_kernel());
  ops::kernels<ops::ChunkGatedDeltaRule>().add("cuda", cuda_chunk_gated_delta_rule_kernel());
  ops::kernels<ops::DecodeAttention>().add("cuda", cuda_decode_attention_kernel());
  ops::kernels<ops::DeltaGates>().add("cuda", cuda_delta_gates_kernel());
  ops::kernels<ops::Dropout>().add("cuda", cuda_dropout_kernel());
  ops::kernels<ops::Embedding>().add("cuda", cuda_embedding_kernel());
  ops::kernels<ops::FakeQuantize>().add("cuda", cuda_fake_quantize_kernel());
  ops::kernels<ops::GlobalNorm>().add("cuda", cuda_global_norm_kernel());
  ops::kernels<ops::LatentDecode>().add("cuda", cuda_latent_decode_kernel());
  ops::kernels<ops::LatentHeads>().add("cuda", cuda_latent_heads_kernel());
  ops::kernels<ops::LatentRotary>().add("cuda", cuda_latent_rotary_kernel());
  ops::kernels<ops::LoadBalancingLoss>().add("cuda", cuda_load_balancing_loss_kernel());
  ops::kernels<ops::ExpertLinear>().add("cuda", cuda_expert_linear_kernel());
  ops::kernels<ops::LoraMoeExperts>().add("cuda", cuda_lora_moe_experts_kernel());
  ops::kernels<ops::MoeExperts>().add("cuda", cuda_moe_experts_kernel());
  ops::kernels<ops::MoeRouter>().add("cuda", cuda_moe_router_kernel());
  ops::kernels<ops::PagedAttention>().add("cuda", cuda_paged_attention_kernel());
  ops::kernels<ops::RecurrentGatedDeltaRule>().add("cuda", cuda_recurrent_gated_delta_rule_kernel());
  ops::kernels<ops::RmsNorm>().add("cuda", cuda_rms_norm_kernel());
  ops::kernels<ops::RmsNormGated>().add("cuda", cuda_rms_norm_gated_kernel());
  ops::kernels<ops::Rotary>().add("cuda", cuda_rotary_kernel());
  ops::kernels<ops::RoundedExperts>().add("cuda", cuda_rounded_experts_kernel());
  ops::kernels<ops::Sample>().add("cuda", cuda_sample_kernel());
  ops::kernels<ops::Swiglu>().add("cuda", cuda_swiglu_kernel());
  ops::kernels<ops::TokenLogProbs>().add("cuda", cuda_token_log_probs_kernel());
}

}  // namespace temper::backends
