#pragma once
#include "ops/selection.h"

namespace temper::ops {

// Rotary position embedding, half-split layout (Su et al., 2021; as Hugging Face pairs i with i + dim/2):
//   y[i]         = x[i] cos[p, i] - x[i + half] sin[p, i]
//   y[i + half]  = x[i + half] cos[p, i] + x[i] sin[p, i]      for i < half, p = positions[token]
// Computed in float32. The gradient is the rotation back.
struct Rotary {
  static constexpr std::string_view kName = "rotary_pos_emb", kField = "rotary_pos_emb";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t head_dim = 0;
  };

  Tensor x;          // [tokens, heads, head_dim]; tokens and heads may have any stride
  Tensor positions;  // [tokens] int32, each in [0, max_positions): checked at the front door
  Tensor cos, sin;   // [max_positions, head_dim / 2] float32, attention scaling included

  using Forward = Tensor(const Rotary&);                     // y, compact
  using Backward = Tensor(const Rotary&, const Tensor& dy);  // dx, compact; dy has x's shape, compact
  using Compose = Var(Tape&, const Var& x, const Tensor& positions, const Tensor& cos, const Tensor& sin);
};

Var rotary(Tape& tape, const BoundOps& ops, const Var& x, const Tensor& positions, const Tensor& cos,
           const Tensor& sin);

}  // namespace temper::ops
