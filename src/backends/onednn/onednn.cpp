#include "backends/onednn/onednn.h"

#include "backends/cpu/vector_targets.h"
#include "backends/onednn/peak.h"

namespace temper::backends {

void register_onednn();
void register_onednn() {
  limit_vector_targets();
  ops::kernels<ops::Attention>().add("onednn", attention_kernel());
  ops::kernels<ops::ChunkGatedDeltaRule>().add("onednn", delta_rule_kernel());
  ops::kernels<ops::CrossEntropy>().add("onednn", cross_entropy_kernel());
  ops::kernels<ops::DecodeAttention>().add("onednn", decode_attention_kernel());
  ops::kernels<ops::LatentDecode>().add("onednn", latent_decode_kernel());
  ops::kernels<ops::Linear>().add("onednn", linear_kernel());
  ops::kernels<ops::Linear>().add("onednn_invariant", invariant_linear_kernel());
  ops::kernels<ops::LoraLinear>().add("onednn", lora_linear_kernel());
  ops::kernels<ops::ExpertLinear>().add("onednn", expert_linear_kernel());
  ops::kernels<ops::LoraLinear>().add("onednn_invariant", invariant_lora_linear_kernel());
  ops::kernels<ops::LoraMoeExperts>().add("onednn", lora_moe_experts_kernel());
  ops::kernels<ops::MoeExperts>().add("onednn", moe_experts_kernel());
  ops::kernels<ops::PagedAttention>().add("onednn", paged_attention_kernel());
  ops::kernels<ops::PagedAttention>().add("onednn_invariant", invariant_paged_attention_kernel());
  registry<PeakProbe>().add("onednn", {PeakProbe::Kind::kProducts, onednn_matmul_peak});
}

}  // namespace temper::backends
