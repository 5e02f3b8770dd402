#pragma once
#include "ops/selection.h"

namespace temper::ops {

// y = x / sqrt(mean(x²) + eps) * weight, row by row (Zhang and Sennrich, 2019). The mean accumulates in
// float32; the product with the weight is formed in float32 and rounded once.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm", kField = "rms_norm";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0;
  };

  Tensor x;       // [..., hidden]; rows may have any stride, each row is compact
  Tensor weight;  // [hidden]
  float eps = 1e-6f;

  struct Output {
    Tensor y;        // x's shape, compact
    Tensor inv_rms;  // [rows] float32: 1 / sqrt(mean(x²) + eps), saved for backward
  };
  using Forward = Output(const RmsNorm&);
  // Returns dx (x's shape, compact).
  using Backward = Tensor(const RmsNorm&, const Tensor& inv_rms, const Tensor& dy, const GradTarget& weight);
  using Compose = Var(Tape&, const Var& x, const Var& weight, float eps);
};

Var rms_norm(Tape& tape, const BoundOps& ops, const Var& x, const Var& weight, float eps);

}  // namespace temper::ops
