#include "backends/simd/simd.h"

#include "backends/cpu/vector_targets.h"
#include "backends/peak.h"

namespace temper::backends {

void register_simd();
void register_simd() {
  limit_vector_targets();
  ops::kernels<ops::AdamW>().add("simd", adamw_kernel());
  ops::kernels<ops::CausalConv1d>().add("simd", causal_conv1d_kernel());
  ops::kernels<ops::CausalConv1dUpdate>().add("simd", causal_conv1d_update_kernel());
  ops::kernels<ops::DeltaGates>().add("simd", delta_gates_kernel());
  ops::kernels<ops::Dropout>().add("simd", dropout_kernel());
  ops::kernels<ops::Embedding>().add("simd", embedding_kernel());
  ops::kernels<ops::FakeQuantize>().add("simd", fake_quantize_kernel());
  ops::kernels<ops::GlobalNorm>().add("simd", global_norm_kernel());
  ops::kernels<ops::LatentHeads>().add("simd", latent_heads_kernel());
  ops::kernels<ops::LatentRotary>().add("simd", latent_rotary_kernel());
  ops::kernels<ops::MoeRouter>().add("simd", moe_router_kernel());
  ops::kernels<ops::RecurrentGatedDeltaRule>().add("simd", recurrent_gated_delta_rule_kernel());
  ops::kernels<ops::RmsNorm>().add("simd", rms_norm_kernel());
  ops::kernels<ops::RmsNormGated>().add("simd", rms_norm_gated_kernel());
  ops::kernels<ops::Rotary>().add("simd", rotary_kernel());
  ops::kernels<ops::Swiglu>().add("simd", swiglu_kernel());
  registry<PeakProbe>().add("simd", {PeakProbe::Kind::kRegisters, register_peak});
}

}  // namespace temper::backends
