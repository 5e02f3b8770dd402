#include "backends/hopper/hopper.h"

#include "base/rooms.h"

namespace temper::backends {

void register_hopper();
void register_hopper() {
  // In front of the kernels of libraries, to which they leave what they are not for.
  ops::kernels<ops::Attention>().add_before(is_built("backends", "cudnn") ? "cudnn" : "cuda", "hopper",
                                            hopper::attention_kernel());
  ops::kernels<ops::LoraLinear>().add_before("cublaslt", "hopper", hopper::lora_linear_kernel());
  ops::kernels<ops::LoraLinear>().add("hopper_invariant", hopper::invariant_lora_linear_kernel());
  ops::kernels<ops::ExpertLinear>().add_before("cuda", "hopper", hopper::expert_linear_kernel());
  ops::kernels<ops::LoraMoeExperts>().add_before("cuda", "hopper", hopper::lora_moe_experts_kernel());
  ops::kernels<ops::MoeExperts>().add_before("cuda", "hopper", hopper::moe_experts_kernel());
  ops::kernels<ops::RoundedExperts>().add_before("cuda", "hopper", hopper::rounded_experts_kernel());
}

}  // namespace temper::backends
