#pragma once
#include "ops/lora_moe_experts/lora_moe_experts.h"

// An adapter's update of experts' matrices: one more matrix multiplication, of few columns, for each of
// theirs.
namespace temper::backends {

// Columns of the products with `a`, rounded up to whole chunks of 16-bit numbers; 0: there is no update.
int64_t low_columns(const ops::LoraMoeExperts::Update& update, int64_t experts);

// The matrices of all slices, each times its scale, side by side, and zeros elsewhere: [experts · outputs,
// columns], so that an expert's whole update is low times its transpose.
Tensor matrices_of_slices(const ops::LoraMoeExperts::Update& update, int64_t experts, int64_t outputs);

}  // namespace temper::backends
