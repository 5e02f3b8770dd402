#pragma once
#include "ops/selection.h"

namespace temper::ops {

struct LayerNormedSum {
  Var sum;  // x + residual, x's shape and dtype
  Var y;    // the norm of the sum, x's shape
};

// y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row, with variance = mean((x - mean)²) (Ba,
// Kiros and Hinton, 2016); with a residual, of x + residual rounded to the dtype. Means accumulate in
// float32, that of the squares of differences; the result is rounded once.
struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm", kField = "layer_norm";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0;
  };

  Tensor x;             // [..., hidden], compact
  Tensor residual;      // undefined, or of x's shape and dtype, compact
  Tensor weight, bias;  // [hidden] each, x's dtype
  float eps = 1e-6f;

  struct Output {
    Tensor y;  // x's shape, compact
    Tensor
        stats;   // [rows, 2] float32: of what was normed the mean and 1 / sqrt(variance + eps), for backward
    Tensor sum;  // x + residual, x's shape and dtype, compact; undefined without residual
  };
  using Forward = Output(const LayerNorm&);
  // `op.x` is what was normed: the sum, where there was a residual; `op.residual` is undefined. dy: x's
  // shape, compact. dsum: the gradient that reached the sum by other ways, x's shape, compact; undefined:
  // none. Returns dx + dsum (x's shape, compact), added in float32 and rounded once.
  using Backward = Tensor(const LayerNorm& op, const Tensor& stats, const Tensor& dy, const Tensor& dsum,
                          const GradTarget& weight, const GradTarget& bias);
  // residual may be Var{}: the sum is x then.
  using Compose = LayerNormedSum(Tape&, const Var& x, const Var& residual, const Var& weight, const Var& bias,
                                 float eps);
};

// The sum continues along the residual stream: its gradient and the norm's meet in the kernel. residual may
// be Var{} (none): the sum is x then.
LayerNormedSum add_layer_norm(Tape& tape, Bound<LayerNorm> bound, const Var& x, const Var& residual,
                              const Var& weight, const Var& bias, float eps);

}  // namespace temper::ops
