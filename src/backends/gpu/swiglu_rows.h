#pragma once
#include "ops/swiglu/swiglu.h"

// swiglu (ops/swiglu) of compact rows on a GPU, float32 or bfloat16, into memory that is there.
namespace temper::backends {

// y [rows, intermediate] = swiglu(gate_up [rows, 2 · intermediate]).
void write_swiglu(const Tensor& gate_up, const Tensor& y,
                  ops::Activation activation = ops::Activation::kSilu);
// dgate_up, as gate_up is laid out, from dy. y may be undefined, or dy: it becomes swiglu(gate_up).
void write_swiglu_backward(const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up, const Tensor& y,
                           ops::Activation activation = ops::Activation::kSilu);

}  // namespace temper::backends
