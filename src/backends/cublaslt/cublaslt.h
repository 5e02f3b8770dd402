#pragma once
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::backends {

ops::Kernel<ops::CrossEntropy> cublaslt_cross_entropy_kernel();
ops::Kernel<ops::Linear> cublaslt_linear_kernel();
ops::Kernel<ops::Linear> cublaslt_invariant_linear_kernel();
ops::Kernel<ops::LoraLinear> cublaslt_lora_linear_kernel();

}  // namespace temper::backends
