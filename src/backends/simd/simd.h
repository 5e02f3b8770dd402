#pragma once
#include "ops/adamw/adamw.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/fake_quantize/fake_quantize.h"
#include "ops/global_norm/global_norm.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_heads/latent_rotary.h"
#include "ops/moe_router/moe_router.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"

namespace temper::backends {

ops::Kernel<ops::AdamW> adamw_kernel();
ops::Kernel<ops::CausalConv1d> causal_conv1d_kernel();
ops::Kernel<ops::CausalConv1dUpdate> causal_conv1d_update_kernel();
ops::Kernel<ops::DeltaGates> delta_gates_kernel();
ops::Kernel<ops::Dropout> dropout_kernel();
ops::Kernel<ops::Embedding> embedding_kernel();
ops::Kernel<ops::FakeQuantize> fake_quantize_kernel();
ops::Kernel<ops::GlobalNorm> global_norm_kernel();
ops::Kernel<ops::LatentHeads> latent_heads_kernel();
ops::Kernel<ops::LatentRotary> latent_rotary_kernel();
ops::Kernel<ops::MoeRouter> moe_router_kernel();
ops::Kernel<ops::RecurrentGatedDeltaRule> recurrent_gated_delta_rule_kernel();
ops::Kernel<ops::RmsNorm> rms_norm_kernel();
ops::Kernel<ops::RmsNormGated> rms_norm_gated_kernel();
ops::Kernel<ops::Rotary> rotary_kernel();
ops::Kernel<ops::Swiglu> swiglu_kernel();

// What float32 multiply-adds of a loop without memory reach, for PeakProbe; also of bfloat16 where its matrix
// multiplications are computed in float32, else 0.
double register_peak(DType dtype, int threads);

}  // namespace temper::backends
