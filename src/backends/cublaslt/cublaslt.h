#pragma once
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::backends {

ops::Kernel<ops::CrossEntropy> cublaslt_cross_entropy_kernel();
ops::Kernel<ops::Linear> cublaslt_linear_kernel();
ops::Kernel<ops::LoraLinear> cublaslt_lora_linear_kernel();
// For compute capability 9.0 and bfloat16: the base's products by a kernel of our own (hopper/) that adds the
// updates while it is at it, the narrow ones by cuBLASLt.
ops::Kernel<ops::LoraLinear> hopper_lora_linear_kernel();

// Why cuBLASLt cannot serve here; nothing when it can, or when the GPU is not of this machine.
ops::Refusal refuse_without_cublaslt(const HardwareFacts& facts);

}  // namespace temper::backends
