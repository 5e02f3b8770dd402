#pragma once
#include "ops/selection.h"

namespace temper::ops {

struct NormedSum {
  Var sum;  // x + residual, x's shape and dtype
  Var y;    // the norm of the sum, x's shape
};

// y = x / sqrt(mean(x²) + eps) * (offset + weight), row by row (Zhang and Sennrich, 2019); with a residual,
// of x + residual rounded to the dtype. The mean accumulates in float32; the product with the weight is
// formed in float32 and rounded once.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm", kField = "rms_norm";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0;
    float offset = 0;
  };

  Tensor x;         // [..., hidden]; rows may have any stride, each row is compact
  Tensor residual;  // undefined, or of x's shape and dtype (then both are compact)
  Tensor weight;    // [hidden]
  float eps = 1e-6f;
  float offset = 0;  // 1 where weights say how far they are from one (Gemma)

  struct Output {
    Tensor y;        // x's shape, compact
    Tensor inv_rms;  // [rows] float32: 1 / sqrt(mean(x²) + eps) of what was normed, saved for backward
    Tensor sum;      // x + residual, x's shape and dtype, compact; undefined without residual
  };
  using Forward = Output(const RmsNorm&);
  // `op.x` is what was normed: the sum, where there was a residual; `op.residual` is undefined. dy: x's
  // shape, compact. dsum: the gradient that reached the sum by other ways, x's shape, compact; undefined:
  // none. Returns dx + dsum (x's shape, compact), added in float32 and rounded once.
  using Backward = Tensor(const RmsNorm& op, const Tensor& inv_rms, const Tensor& dy, const Tensor& dsum,
                          const GradTarget& weight);
  // residual may be Var{}: the sum is x then.
  using Compose = NormedSum(Tape&, const Var& x, const Var& residual, const Var& weight, float eps,
                            float offset);
};

// The sum continues along the residual stream: its gradient and the norm's meet in the kernel. residual may
// be Var{} (none): the sum is x then.
NormedSum add_rms_norm(Tape& tape, Bound<RmsNorm> bound, const Var& x, const Var& residual, const Var& weight,
                       float eps, float offset = 0);

}  // namespace temper::ops
