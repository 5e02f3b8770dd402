#pragma once
#include "backends/floats.h"
#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"
#include "ops/attention/paged_attention.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/fake_quantize/fake_quantize.h"
#include "ops/global_norm/global_norm.h"
#include "ops/latent_decode/latent_decode.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_heads/latent_rotary.h"
#include "ops/load_balancing_loss/load_balancing_loss.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/moe_experts/moe_experts.h"
#include "ops/moe_router/moe_router.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"
#include "ops/rotary/rotary.h"
#include "ops/rounded_experts/rounded_experts.h"
#include "ops/sample/sample.h"
#include "ops/swiglu/swiglu.h"
#include "ops/token_log_probs/token_log_probs.h"

namespace temper::backends {

ops::Kernel<ops::AdamW> cuda_adamw_kernel();
ops::Kernel<ops::Attention> cuda_attention_kernel();
ops::Kernel<ops::Attention> cuda_invariant_attention_kernel();
ops::Kernel<ops::CausalConv1d> cuda_causal_conv1d_kernel();
ops::Kernel<ops::CausalConv1dUpdate> cuda_causal_conv1d_update_kernel();
ops::Kernel<ops::ChunkGatedDeltaRule> cuda_chunk_gated_delta_rule_kernel();
ops::Kernel<ops::DecodeAttention> cuda_decode_attention_kernel();
ops::Kernel<ops::DeltaGates> cuda_delta_gates_kernel();
ops::Kernel<ops::Dropout> cuda_dropout_kernel();
ops::Kernel<ops::Embedding> cuda_embedding_kernel();
ops::Kernel<ops::FakeQuantize> cuda_fake_quantize_kernel();
ops::Kernel<ops::GlobalNorm> cuda_global_norm_kernel();
ops::Kernel<ops::LatentDecode> cuda_latent_decode_kernel();
ops::Kernel<ops::LatentHeads> cuda_latent_heads_kernel();
ops::Kernel<ops::LatentRotary> cuda_latent_rotary_kernel();
ops::Kernel<ops::LoadBalancingLoss> cuda_load_balancing_loss_kernel();
ops::Kernel<ops::ExpertLinear> cuda_expert_linear_kernel();
ops::Kernel<ops::LoraMoeExperts> cuda_lora_moe_experts_kernel();
ops::Kernel<ops::MoeExperts> cuda_moe_experts_kernel();
ops::Kernel<ops::MoeRouter> cuda_moe_router_kernel();
ops::Kernel<ops::PagedAttention> cuda_paged_attention_kernel();
ops::Kernel<ops::RecurrentGatedDeltaRule> cuda_recurrent_gated_delta_rule_kernel();
ops::Kernel<ops::RmsNorm> cuda_rms_norm_kernel();
ops::Kernel<ops::RmsNormGated> cuda_rms_norm_gated_kernel();
ops::Kernel<ops::Rotary> cuda_rotary_kernel();
ops::Kernel<ops::RoundedExperts> cuda_rounded_experts_kernel();
ops::Kernel<ops::Sample> cuda_sample_kernel();
ops::Kernel<ops::Swiglu> cuda_swiglu_kernel();
ops::Kernel<ops::TokenLogProbs> cuda_token_log_probs_kernel();
void register_tensors();     // copies and sums of tensors on GPUs
void register_primitives();  // what compositions are made of

}  // namespace temper::backends
