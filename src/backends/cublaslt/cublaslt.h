#pragma once
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::backends {

ops::Kernel<ops::CrossEntropy> cublaslt_cross_entropy_kernel();
ops::Kernel<ops::Linear> cublaslt_linear_kernel();
ops::Kernel<ops::LoraLinear> cublaslt_lora_linear_kernel();
// For compute capability 9.0 and bfloat16, by kernels of our own (hopper/): the base's products, with the
// updates as more of the same sums, and an adapter's gradients from one reading of dy; what is left by
// cuBLASLt.
ops::Kernel<ops::LoraLinear> hopper_lora_linear_kernel();

// Why cuBLASLt cannot serve here; nothing when it can, or when the GPU is not of this machine.
ops::Refusal refuse_without_cublaslt(const HardwareFacts& facts);

}  // namespace temper::backends
