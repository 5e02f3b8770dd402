#pragma once
#include "ops/linear/linear.h"
#include "ops/moe_experts/moe_experts.h"

// Kernels that others of this room are made of.
namespace temper::backends {

ops::Kernel<ops::Linear> linear_kernel();
ops::Kernel<ops::MoeExperts> moe_experts_kernel();

// Up to this many rows the weights' way through memory costs more than the products: they are read as they
// are, in 8 bits too.
inline constexpr int64_t kFewLinearRows = 16;
inline bool takes_few_rows(const Tensor& x, const Tensor& /*weight*/) { return x.dim(0) <= kFewLinearRows; }

}  // namespace temper::backends
