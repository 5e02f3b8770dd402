#pragma once
#include "backends/gpu/expert_plan.h"
#include "ops/rounded_experts/rounded_experts.h"

// What is computed on the rows of experts whose matrices read them rounded (ops/rounded_experts), apart from
// matrix multiplications: in float32 or bfloat16, by a warp for each row, each sum in a fixed order. `ids`
// [tokens, top_k] int32 are those that the plan was made of. Tensors are compact; on a device that only
// counts nothing is computed.
namespace temper::backends {

// How the rows of a plan are rounded.
struct RoundedRows {
  const ExpertPlan& plan;
  const ops::RowRounding& how;
  const Tensor& ids;  // [tokens, top_k] int32
};

// Of x [tokens, columns] each row's token, rounded: [plan's rows, columns].
Tensor gather_rounded(const RoundedRows& rows, const Tensor& x);

// y [plan's rows, width] = swiglu of gate_up [plan's rows, 2 width], rounded.
void rounded_swiglu(const RoundedRows& rows, const Tensor& gate_up, const Tensor& y);

// With y as forward made it and w [tokens, top_k] float32, dy [plan's rows, width] that of w · y divided by
// w: dgate_up; y becomes w · y; dw of each choice. The last two where they are defined. y may be dy.
struct RoundedSwigluGradients {
  Tensor dgate_up;  // [plan's rows, 2 width]
  Tensor y;         // [plan's rows, width]
  Tensor dweights;  // [tokens, top_k] float32
};
void rounded_swiglu_backward(const RoundedRows& rows, const Tensor& gate_up, const Tensor& weights,
                             const Tensor& dy, const RoundedSwigluGradients& grads);

// dx[t] = Σ_j given[place of choice j of token t], j ascending, in float32, without those that rounding
// clipped: where |x[t]| is above amax. dx and x [tokens, columns], given [plan's rows, columns].
void sum_unclipped(const RoundedRows& rows, const Tensor& given, const Tensor& x, const Tensor& dx);

// That no kernel above is for what is asked.
ops::Refusal refuse_rounding(const ops::RoundedExperts::Signature& signature);

}  // namespace temper::backends
