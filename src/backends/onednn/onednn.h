#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"
#include "ops/attention/paged_attention.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/latent_decode/latent_decode.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/moe_experts/moe_experts.h"

namespace temper::backends {

ops::Kernel<ops::Attention> attention_kernel();
ops::Kernel<ops::CrossEntropy> cross_entropy_kernel();
ops::Kernel<ops::DecodeAttention> decode_attention_kernel();
ops::Kernel<ops::ChunkGatedDeltaRule> delta_rule_kernel();
ops::Kernel<ops::LatentDecode> latent_decode_kernel();
ops::Kernel<ops::Linear> linear_kernel();
ops::Kernel<ops::Linear> invariant_linear_kernel();
ops::Kernel<ops::LoraLinear> lora_linear_kernel();
ops::Kernel<ops::ExpertLinear> expert_linear_kernel();
ops::Kernel<ops::LoraLinear> invariant_lora_linear_kernel();
ops::Kernel<ops::LoraMoeExperts> lora_moe_experts_kernel();
ops::Kernel<ops::MoeExperts> moe_experts_kernel();
ops::Kernel<ops::PagedAttention> paged_attention_kernel();
ops::Kernel<ops::PagedAttention> invariant_paged_attention_kernel();

// Up to this many rows the weights' way through memory costs more than the products: they are read as they
// are, in 8 bits too.
inline constexpr int64_t kFewLinearRows = 16;
inline bool takes_few_rows(const Tensor& x, const Tensor& /*weight*/) { return x.dim(0) <= kFewLinearRows; }

}  // namespace temper::backends
