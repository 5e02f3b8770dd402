#pragma once
#include "ops/selection.h"

namespace temper::ops {

// AdamW (Loshchilov and Hutter, 2019) over all parameters at once, in place. With g = clip_scale · grad:
//   m ← β1 m + (1 - β1) g;   v ← β2 v + (1 - β2) g²
//   w ← w - lr · weight_decay · w - lr · (m / (1 - β1^step)) / (sqrt(v / (1 - β2^step)) + eps)
// Arithmetic is float32; the bias corrections are formed in double.
struct AdamW {
  static constexpr std::string_view kName = "adamw", kField = "adamw";
  struct Signature {
    DType dtype = DType::kF32;  // of the parameters
  };
  struct Slot {
    Tensor value;       // the parameter, any float dtype; rewritten from master when there is one
    Tensor master;      // float32 master weights, or undefined: `value` itself is updated (then float32)
    Tensor grad;        // float32
    Tensor exp_avg;     // float32, m
    Tensor exp_avg_sq;  // float32, v
    float weight_decay = 0;
  };

  std::vector<Slot> slots;
  float lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  float clip_scale = 1;
  int64_t step = 1;  // counts from 1

  using Forward = void(const AdamW&);
  using Backward = void();  // not differentiable
  using Compose = void(const AdamW&);
};

void adamw(const BoundOps& ops, const AdamW& op);

}  // namespace temper::ops
