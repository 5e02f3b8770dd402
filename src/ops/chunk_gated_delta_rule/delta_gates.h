#pragma once
#include "ops/selection.h"

namespace temper::ops {

struct Gates {
  Var g, beta;  // [tokens, heads] float32
};

// The gates of the gated delta rule from what a token asks for, head by head, all in float32 without a
// rounding:
//   g = -exp(a_log) · softplus(a + dt_bias)      beta = 1 / (1 + exp(-b))
struct DeltaGates {
  static constexpr std::string_view kName = "delta_gates", kField = "delta_gates";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t heads = 0;
  };

  Tensor a, b;            // [tokens, heads]; tokens may have any stride
  Tensor a_log, dt_bias;  // [heads], a's dtype or float32, both the same

  struct Output {
    Tensor g, beta;  // [tokens, heads] float32, compact
  };
  struct Grads {
    Tensor a, b;  // [tokens, heads], a's dtype, compact
  };
  using Forward = Output(const DeltaGates&);
  // dg and dbeta [tokens, heads] float32, compact.
  using Backward = Grads(const DeltaGates&, const Tensor& dg, const Tensor& dbeta, const GradTarget& a_log,
                         const GradTarget& dt_bias);
  using Compose = Gates(Tape&, const Var& a, const Var& b, const Var& a_log, const Var& dt_bias);
};

Gates delta_gates(Tape& tape, Bound<DeltaGates> bound, const Var& a, const Var& b, const Var& a_log,
                  const Var& dt_bias);

}  // namespace temper::ops
