#pragma once
#include "ops/attention/attention.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/lora_linear/lora_linear.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/moe_experts/moe_experts.h"
#include "ops/rounded_experts/rounded_experts.h"

namespace temper::backends::hopper {

// For compute capability 9.0 and heads of 64 or 128: forward by the registered kernel `cudnn`, backward by a
// kernel of our own, which gives the same bits every time and is faster than cuDNN's.
ops::Kernel<ops::Attention> attention_kernel();
// For compute capability 9.0 and bfloat16, by kernels of our own: the base's products, with the updates as
// more of the same sums, and an adapter's gradients from one reading of dy; what is left by cuBLASLt.
ops::Kernel<ops::LoraLinear> lora_linear_kernel();
ops::Kernel<ops::LoraLinear> invariant_lora_linear_kernel();

// For compute capability 9.0 and bfloat16, by kernels of our own: one launch a product for all experts.
ops::Kernel<ops::MoeExperts> moe_experts_kernel();
// The same with an adapter's updates as more of the same sums.
ops::Kernel<ops::LoraMoeExperts> lora_moe_experts_kernel();
// The same products of rows that are rounded before, and of any rows.
ops::Kernel<ops::RoundedExperts> rounded_experts_kernel();
ops::Kernel<ops::ExpertLinear> expert_linear_kernel();

}  // namespace temper::backends::hopper
