#pragma once
#include "backends/gpu/lora_moe_experts.h"

// The narrow products of experts' updates for compute capability 9.0, all bfloat16 with sizes that are
// multiples of 8 and compact from whole chunks on. Sums are float32, of one order, which does not depend on
// other rows.
namespace temper::backends::hopper {

// low = rows matrixᵀ, or rows matrix, with each expert's matrix. `gathers`: the rows are those of tokens.
// Columns of low beyond the matrix's rows, where it is transposed, are zero.
void narrow_product(const ExpertPlan& plan, const Tensor& rows, bool gathers, const Tensor& matrices,
                    bool transpose, const Tensor& low);

// target (+)= scale · Σ wideᵀ low over each expert's rows, or its transpose lowᵀ wide, [experts · ·, ·].
// An expert without rows has zeros. low's rows are in the plan's order.
void narrow_gradient(const ExpertPlan& plan, const RowColumns& wide, const RowColumns& low, bool transposed,
                     float scale, const GradTarget& target);

}  // namespace temper::backends::hopper
