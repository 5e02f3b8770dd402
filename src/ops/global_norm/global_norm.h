#pragma once
#include "ops/selection.h"

namespace temper::ops {

// sqrt(Σ g²) over all gradients, summed over fixed pieces in a fixed order: the same for any number of
// threads. The sum of the pieces is double; on GPUs a piece (at most 64K elements) is summed in float32.
struct GlobalNorm {
  static constexpr std::string_view kName = "global_norm", kField = "global_norm";
  struct Signature {
    DType grads = DType::kF32;
  };

  std::vector<Tensor> grads;  // of any shapes, float32 or bfloat16, compact, of one dtype and on one device
  Device device = {};         // where the result goes: that of the gradients
  // Two numbers instead, whose squares add up to Σ g² as closely as double has it: the norm of those of parts
  // is the norm of the whole, rounded once, wherever the parts begin.
  bool in_two = false;

  using Forward = Tensor(const GlobalNorm&);  // [1] or [2] float32
  using Backward = void();                    // not differentiable
  using Compose = Tensor(const GlobalNorm&);
};

Tensor global_norm(Bound<GlobalNorm> bound, const GlobalNorm& op);

// For kernels: the result on the CPU, of the sum of squares.
Tensor norm_of_squares(double sum, bool in_two);

}  // namespace temper::ops
