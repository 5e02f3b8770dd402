#pragma once
#include "ops/selection.h"

namespace temper::ops {

// y = x / sqrt(mean(x²) + eps) · weight · gate / (1 + exp(-gate)), head by head. All is float32; y is rounded
// once.
struct RmsNormGated {
  static constexpr std::string_view kName = "rms_norm_gated", kField = "rms_norm_gated";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t dim = 0;  // of one head
  };

  Tensor x;       // [tokens, heads, dim], compact
  Tensor gate;    // x's shape and dtype; tokens may have any stride
  Tensor weight;  // [dim], x's dtype or float32
  float eps = 1e-6f;

  struct Output {
    Tensor y;        // x's shape, compact
    Tensor inv_rms;  // [tokens, heads] float32: 1 / sqrt(mean(x²) + eps), saved for backward
  };
  struct Grads {
    Tensor x, gate;  // x's shape and dtype, compact
  };
  using Forward = Output(const RmsNormGated&);
  // dy: x's shape, compact. The weight's gradient sums over tokens and heads in a fixed order.
  using Backward = Grads(const RmsNormGated&, const Tensor& inv_rms, const Tensor& dy,
                         const GradTarget& weight);
  using Compose = Var(Tape&, const Var& x, const Var& gate, const Var& weight, float eps);
};

Var rms_norm_gated(Tape& tape, Bound<RmsNormGated> bound, const Var& x, const Var& gate, const Var& weight,
                   float eps);

}  // namespace temper::ops
