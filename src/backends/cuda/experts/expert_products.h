#pragma once
#include "backends/gpu/lora_moe_experts.h"

// The steps of moe_experts (ops/moe_experts) in float32, bfloat16 or float16, in the order of the plan's
// rows; each sum is float32 and has one order, which does not depend on other rows. Tensors are compact; on a
// device that only counts nothing is computed.
namespace temper::backends {

// Why these steps are not for a mixture.
ops::Refusal refuse_experts(const ops::MoeExperts::Signature& signature, const HardwareFacts& facts);

// The tiles of the rows of experts, an argument of launches.
Tensor row_tiles(const ExpertPlan& plan);

// d = rows matrixᵀ or rows matrix, with each expert's matrix, and the update, whose matrices may have fewer
// rows than low has columns. Columns of d beyond those of the
// product are zero.
struct GivenRows {
  const Tensor& rows;  // [rows, ·], or [tokens, ·] where it gathers
  bool gathers;
};
void multiply_rows(const ExpertPlan& plan, const Tensor& tiles, const GivenRows& rows, const Tensor& matrices,
                   bool transpose, const Tensor& d, const ExpertUpdate& update = {});
// target (+)= scale · Σ aᵀ b over each expert's rows.
void add_expert_gradient(const ExpertPlan& plan, const RowColumns& a, const RowColumns& b,
                         const GradTarget& target, float scale = 1);

// y [rows, width] = weight · swiglu of gate_up [rows, 2 width].
void weighted_swiglu(const ExpertPlan& plan, const Tensor& gate_up, const Tensor& weights, const Tensor& y);
// dgate_up from dy [rows, width]; y once more and the gradients of weights where they are defined. y may be
// dy.
void weighted_swiglu_backward(const ExpertPlan& plan, const Tensor& gate_up, const Tensor& weights,
                              const Tensor& dy, const Tensor& dgate_up, const Tensor& y,
                              const Tensor& dweights);

}  // namespace temper::backends
